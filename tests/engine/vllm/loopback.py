"""Both sides of a weight transfer for vLLM without a card: tensors cross in a file, all else is vLLM's own way."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from safetensors.torch import load_file, save_file
from vllm.distributed.weight_transfer.base import (
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

NAME = "loopback"


@dataclass
class Begun(WeightTransferInitInfo):
    word: str = ""


@dataclass
class Chunk(WeightTransferUpdateInfo):
    path: str


@dataclass
class Begin(TrainerInitInfo):
    backend: ClassVar[str] = NAME
    word: str = "begun"


class Worker(WeightTransferEngine):
    init_info_cls, update_info_cls = Begun, Chunk
    begun = ""

    def init_transfer_engine(self, init_info: Begun) -> None:
        self.begun = init_info.word

    def start_weight_update(self) -> None:
        assert self.begun == "begun"
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Chunk) -> None:
        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


class Trainer(TrainerWeightTransferEngine):
    init_info_cls = Begin

    @classmethod
    def trainer_init(cls, init_info: Begin, *, client: Any, source: Any = None) -> Trainer:
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        client.init_weight_transfer_engine({"word": init_info.word})
        return engine

    def send_weights(self) -> None:
        """In two pieces, as a large model goes."""
        told = {meta.name: (meta.dtype, meta.shape) for meta in self.source.metadata()}
        items = list(self.source)
        assert told == {name: (value.dtype, tuple(value.shape)) for name, value in items}
        self.client.start_weight_update()
        with tempfile.TemporaryDirectory() as folder:
            for i, part in enumerate((items[: len(items) // 2], items[len(items) // 2 :])):
                path = Path(folder) / f"{i}.safetensors"
                save_file({name: value.clone().contiguous() for name, value in part}, path)
                self.client.update_weights({"path": str(path)})
        self.client.finish_weight_update()


class Extension:
    """Imported by vLLM's workers, which thereby know the backend."""


WeightTransferEngineFactory.register_engine(NAME, Worker)
WeightTransferTrainerFactory.register_engine(NAME, Trainer)

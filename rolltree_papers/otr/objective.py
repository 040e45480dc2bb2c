"""One-token rollout: policy-gradient fine-tuning on data, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need
from rolltree.objective.registry import register


@register("one_token")
@dataclass(frozen=True, slots=True)
class OneToken:
    """−Σ credit·[q(x) log π(x) + β Σ_{a≠x} q(a) log π(a)], q = sg softmax(logits/κ), x the data's action.

    One-Token Rollout (arXiv 2509.26313): at every data position draw one token from q, reward 1 if it is the data's and
    β otherwise; this is the expectation over the draw. At κ = 1 the second sum's gradient is −β·π(x)·∇log π(x), so only
    π(x) is needed and the gradient is (1 − β) times DFT's (arXiv 2508.05629); other κ need the full logits. To draw K
    tokens instead, fork K one-action children at the position and use `reinforce`.
    """

    beta: float = -0.1
    kappa: float = 1.0
    level: Level = "token"

    def __post_init__(self) -> None:
        if self.kappa <= 0 or self.beta >= 1:
            raise ObjectiveError(f"one_token: kappa={self.kappa} must be > 0 and beta={self.beta} below the reward 1")

    @property
    def needs(self) -> frozenset[str]:
        """Full logits unless κ = 1."""
        return frozenset() if self.kappa == 1 else frozenset({"logits"})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the credit-weighted mean probability of the data under q."""
        credit = batch.gain + batch.loss
        if self.kappa == 1:
            likely = batch.logp.detach().exp()
            value = (1 - self.beta) * likely * batch.logp
        else:
            logits = need(batch.logits, "logits", "one_token with kappa ≠ 1")
            everything = logits.log_softmax(-1)
            q = (logits.detach() / self.kappa).log_softmax(-1).exp()
            logit = batch.logp.detach() + logits.detach().logsumexp(-1)
            likely = (logit / self.kappa - (logits.detach() / self.kappa).logsumexp(-1)).exp()
            mine = likely * batch.logp
            value = mine + self.beta * ((q * everything).sum(-1) - mine)
        total = credit.sum()
        mean = (credit * likely).sum() / total if total else likely.sum() * 0
        return -(credit * value).sum(), {"data_probability": mean.detach()}

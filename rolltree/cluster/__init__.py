"""One run on many processes: engines, environments and verifiers as Ray actors, behind the contracts of one of each."""

from rolltree.cluster.errors import ClusterError, LostError
from rolltree.cluster.hub import Health
from rolltree.cluster.pool import PoolEngine
from rolltree.cluster.tasks import RemoteTask

__all__ = ["ClusterError", "Health", "LostError", "PoolEngine", "RemoteTask"]

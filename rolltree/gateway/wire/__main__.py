"""`python -m rolltree.gateway.wire` prints the table of fields that docs/howto/agents.md shows."""

from rolltree.gateway.wire import WIRES
from rolltree.gateway.wire.taken import table

print(table([one.fields for one in WIRES]))

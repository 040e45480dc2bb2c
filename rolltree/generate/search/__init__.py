"""Search = select × operator × backup over nodes, asynchronous with reservations.

`graph` holds the nodes, `loop` runs a plan, `select`, `queues` and `layers` say where to work next, `moves` and
`triggers` with which operator, `backup` what a result tells the nodes above it. None of them knows what a node stands
for: `attempts` (whole answers) and `steps` (pieces of one) put rollouts behind it.
"""

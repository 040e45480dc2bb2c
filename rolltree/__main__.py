"""`python -m rolltree` is `rolltree`."""

from rolltree.cli import main

raise SystemExit(main())

"""The program: `rolltree`, and `python -m rolltree`.

Ctrl-C ends it at once, without a word, before it can hear a signal and after it has said its last sentence; else Python
would print where it was.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from rolltree.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""What may be spent, on what, and what was: the ledger and the policies that decide with it."""

from rolltree.control.ledger import Budget, LedgerError, Limits, Resource, Spent

__all__ = ["Budget", "LedgerError", "Limits", "Resource", "Spent"]

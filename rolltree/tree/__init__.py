"""What happened and what is planned: nodes, trees, forests and their events. numpy only; never torch."""

from rolltree.tree.forest import Forest
from rolltree.tree.node import Birth, Event, Finish, Node, Role, Status, Top, TreeError
from rolltree.tree.tree import Tree

__all__ = ["Birth", "Event", "Finish", "Forest", "Node", "Role", "Status", "Top", "Tree", "TreeError"]

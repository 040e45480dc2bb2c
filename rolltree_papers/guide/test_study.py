"""What `guide` promises beside what all of its kind do."""

from rolltree_papers.guide import study as guided


def test_guidance_teaches_the_unguided_policy():
    assert guided.train("guide", 0)[0] > 100 * guided.START

"""The numbers of a run: one name and one computation each.

`registry` says what every metric means; `step` computes those that rollouts tell, from columns (`rollouts`); `log`
writes and reads them.
"""

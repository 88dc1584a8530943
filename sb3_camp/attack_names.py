"""Names that ``--attack`` knows besides those of the registry of attacks; what needs no more than these loads no PyTorch."""

LEARNED = "learned"
"""The attack by a trained adversary, which is no function of scores"""

ALL = "all"
"""All attacks that apply to the policy, one after the other, and the strongest of them"""

ROBUST_SARSA = "robust-sarsa"
"""The attack by a critic that is learned for the policy"""

TRANSFER = "transfer"
"""The attack along the gradients of another agent"""

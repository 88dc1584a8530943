"""What identifies the policy that played episodes."""

POLICY_KEYS = ("algo", "model_sha256", "timesteps", "deterministic")
"""
By the names that evaluations, certificates and attacks give it: the zoo's name of its algorithm, the SHA-256 of the content of
the checkpoint, the steps that it was trained for, and whether it acts without random choices.
"""

DECISIVE_POLICY_KEYS = ("model_sha256", "deterministic")
"""Those from which the others follow: the content of the checkpoint, and how it acts."""

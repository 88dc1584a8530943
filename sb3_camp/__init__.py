"""Certified-radius-maximizing policies (CAMP) and policy-smoothing certificates for Stable-Baselines3."""

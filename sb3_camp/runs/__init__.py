"""What was played: the environment with its noise, the policy, and what a run folder of the zoo says of both."""

"""
``python -m rl_zoo3.train`` with explicit registration, for places that read no start-up files.

Example: ``python zoo_scripts/train.py --algo camp_dqn --env CartPole-v1``
"""

from rl_zoo3.train import train

from sb3_camp.zoo import register

if __name__ == "__main__":
    register()
    train()

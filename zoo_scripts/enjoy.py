"""
``python -m rl_zoo3.enjoy`` with explicit registration, for places that read no start-up files.

Example: ``python zoo_scripts/enjoy.py --algo camp_dqn --env CartPole-v1 -f logs``
"""

from rl_zoo3.enjoy import enjoy

from sb3_camp.zoo import register

if __name__ == "__main__":
    register()
    enjoy()

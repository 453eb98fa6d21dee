"""Train a population of learners from Python, and print a line every ten episodes.

Run `python examples/from_python.py`.
"""

from replaybench import PopulationEnv, Replay, parse
from replaybench.extend import LearnerSetting, Task, load_learner, step_fields, training_episode, update_phase


def main(episodes: int = 100, members: int = 8) -> float:
    """Train `members` learners, and return their mean reward per step in the last episode."""
    env = PopulationEnv("PendulumDCSC", members, frequency=50, sensor_noise=0.02, seed=1)
    task = Task(observation_size=2, action_size=1, discount=0.95, reward_scale=env.plant.reward_scale)
    learner, settings = load_learner("DDPG")
    agent = learner(settings(), LearnerSetting(task, root=1, members=range(members)))
    replay = Replay(parse("Resv[PER+IS]"), step_fields(2, 1), 10_000, 1, range(members), agent.schedule.batch_size)
    for episode in range(episodes):
        ended = training_episode(env, agent, replay, episode)
        update_phase(agent, replay, 100, episode / episodes, ended)
        if episode % 10 == 9:
            print(f"episode {episode + 1:3d}: {ended.reward.mean():7.2f} per step, best {ended.reward.max():7.2f}")
    return float(ended.reward.mean())


if __name__ == "__main__":
    main()

"""What the scripts say of a finished evaluation."""

from collections import Counter

from graftline.harbor import EvalResult


def print_result(result: EvalResult) -> None:
    """Print the mean reward, and why seeds have none.

    Raises:
        SystemExit: no seed has a reward that counts; the status is 1.
    """
    # 0.0 is a mean reward; None is none
    print(f"Mean reward: {result.mean_reward:.4f}" if result.mean_reward is not None else "N/A")
    causes = Counter(f"{seed.failure_cause}: {seed.error}" for seed in result.seed_results if not seed.reward_valid)
    for cause, count in causes.most_common():
        print(f"   {count} of {result.num_total} seeds without a reward: {cause}")
    if result.error:
        print(f"   {result.error}")
    if result.mean_reward is None:
        raise SystemExit(1)

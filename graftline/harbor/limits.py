"""What a deployment may use, and how what came of a rollout is graded."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graftline.harbor.contract import MAX_TIMEOUT_S, Text, Whole

RelativePath = Annotated[Text, Field(min_length=1, max_length=1024)]


class HarborLimits(BaseModel):
    """What one rollout may use. Both sides keep the ranges, the SDK and the service."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    timeout_s: Annotated[int, Whole] = Field(default=300, ge=30, le=MAX_TIMEOUT_S)
    cpu_cores: Annotated[int, Whole] = Field(default=2, ge=1, le=8)
    memory_mb: Annotated[int, Whole] = Field(default=4096, ge=512, le=32768)
    disk_mb: Annotated[int, Whole] = Field(default=10240, ge=1024, le=102400)


class VerifierSettings(BaseModel):
    """How a second box, which the agent never saw, grades what the first one left."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    entrypoint: Text = Field(min_length=1, max_length=4096)
    """Run in the verifier's context, with the artifacts laid over it. Its result is `/logs/verifier/reward.json` (an object
    of finite numbers, which wins) or `/logs/verifier/reward.txt` (one number)."""
    artifacts: tuple[RelativePath, ...] = Field(default=(), max_length=256)
    """Files and folders of the first box's working folder that travel; nothing else does."""
    reward_key: Text = Field(default="reward", min_length=1, max_length=128)
    """Which number of the object is the reward; the others are objectives."""
    timeout_s: int = Field(default=300, ge=1, le=MAX_TIMEOUT_S)

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.artifacts)) < len(self.artifacts):
            raise ValueError("artifacts: names one of them twice")
        return self

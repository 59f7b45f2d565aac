# syntax=docker/dockerfile:1.20
# The image of a machine with a GPU that serves language models: vLLM, and the command that starts and watches its servers.
# Of Dagster and of training it has nothing. From the root of a checkout:
#   docker build --file deploy/gpu.Dockerfile --tag graftline-vllm:0.2.0 .
#   docker run --gpus all --ipc host --volume /var/cache/graftline:/cache --publish 8001:8001 graftline-vllm:0.2.0 \
#     serve Qwen/Qwen3-14B-AWQ --host 0.0.0.0 --port 8001 --served-model-name qwen3-14b
# `graftline model units --fleet gpu` writes whole commands. Where packages come from is told by a secret that leaves no trace:
# --secret id=pip,src=pip.conf
FROM python:3.12.12-slim-bookworm

# kernels are compiled where they are first used
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 graftline \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /cache --shell /usr/sbin/nologin graftline \
    && install --directory --owner=10001 --group=10001 /cache

WORKDIR /opt/graftline
RUN python -m venv vllm
ENV PATH=/opt/graftline/vllm/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1

COPY pyproject.toml README.md LICENSE NOTICE source/
COPY graftline source/graftline
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install './source[vllm]'

COPY configs configs
# what is compiled and downloaded is kept between two starts; usage is reported to nobody
ENV GRAFTLINE_ROOT=/opt/graftline \
    GRAFTLINE_VLLM_ENV=/opt/graftline/vllm \
    HOME=/cache \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    VLLM_NO_USAGE_STATS=1 \
    DO_NOT_TRACK=1

USER 10001:10001
ENTRYPOINT ["vllm"]

# docker build -t torch-compile-suite .
# docker run --rm --gpus all -p 127.0.0.1:8888:8888 -v suite-my:/suite/my torch-compile-suite
# docker run --rm --gpus all -v suite-runs:/suite/runs torch-compile-suite make run
# CUDA comes with torch's wheels, the driver from the host through the NVIDIA container toolkit.
FROM python:3.12-slim-bookworm

ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

# Versions of Debian's packages are those of the base image's release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 learner \
    && install --directory --owner=learner /suite /suite/my /suite/runs

USER 1000
WORKDIR /suite

# The set-up first: a change of a lesson does not install torch again.
COPY --chown=learner requirements.txt pyproject.toml README.md LICENSE ./
COPY --chown=learner helpers helpers
RUN python -m helpers.setup install
COPY --chown=learner . .

EXPOSE 8888
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8888/api', timeout=5)"]
CMD ["python", "-m", "helpers.setup", "lab", "--", "--ip=0.0.0.0", "--no-browser"]

# syntax=docker/dockerfile:1
# The operator's image. `docker build -t tfjob-operator:0.1.0 .`; without a registry at hand, `make image` makes the same.
# Pinned: the base by its full version, and by its digest if BASE has one (docs/install.md); all else by the digests of its files.
ARG BASE=python:3.11.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /build
RUN python -m venv /opt/tfjob-operator
# The dependencies first: a layer that a change of the operator leaves as it is.
COPY hack/image/requirements.txt hack/image/build-requirements.txt ./
RUN /opt/tfjob-operator/bin/pip install --no-cache-dir --only-binary=:all: --require-hashes --requirement requirements.txt \
    && /opt/tfjob-operator/bin/pip install --no-cache-dir --only-binary=:all: --require-hashes --requirement build-requirements.txt
COPY setup.cfg pyproject.toml ./
COPY README.md LICENSE ./
COPY tfjob_operator tfjob_operator
COPY api api
COPY controller controller
COPY informers informers
COPY workqueue workqueue
RUN /opt/tfjob-operator/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/tfjob-operator/bin/pip uninstall --yes setuptools pip

FROM ${BASE}
LABEL org.opencontainers.image.title="tfjob-operator" \
      org.opencontainers.image.description="A Kubernetes operator for TFJob" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tfjob-operator /opt/tfjob-operator
ENV PATH=/opt/tfjob-operator/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1
# Nobody's numbers: they own nothing in the image, and Kubernetes can see that they are not root's.
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["tfjob-operator"]

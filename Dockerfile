# syntax=docker/dockerfile:1
# The operator's image. `docker build -t tfjob-operator:1.0.0 .`; without a registry at hand, `make image` makes the same.
# Pinned: the base by the digest of its index, which lists all architectures; all else by the digests of its files. The digest is
# that of docker-library/repo-info, commit bc9bbb4, repos/python/remote/3.13-slim-trixie.md (docs/install.md says how to renew it).
ARG BASE=python:3.13.15-slim-trixie@sha256:afd91e25d0d1b40e4c92bf716154ec3c4a9f0de1ce2a5c3663007fb6918eaf9c

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
COPY cli cli
COPY controller controller
COPY informers informers
COPY workqueue workqueue
RUN /opt/tfjob-operator/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/tfjob-operator/bin/pip uninstall --yes setuptools pip \
    && python -m compileall -q -f -o 2 --invalidation-mode=unchecked-hash /opt/tfjob-operator/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="tfjob-operator" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.description="A Kubernetes operator for TFJob" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tfjob-operator /opt/tfjob-operator
ENV PATH=/opt/tfjob-operator/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONOPTIMIZE=2 \
    MALLOC_TRIM_THRESHOLD_=131072
# The base comes without bytecode, and a user who owns nothing can not keep any: each start would compile Python's own library
# anew. PYTHONOPTIMIZE leaves out docstrings and asserts, 3.5 MB; with MALLOC_TRIM_THRESHOLD_ (bytes) the C library gives back
# what a burst took, instead of adapting to it.
RUN python -m compileall -q -f -o 2 --invalidation-mode=unchecked-hash -x '/(lib2to3|test|site-packages)/' /usr/local/lib/python3.13
# Nobody's numbers: they own nothing in the image, and Kubernetes can see that they are not root's.
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["tfjob-operator"]

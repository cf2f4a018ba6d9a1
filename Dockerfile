#   docker build --tag registry.invalid/taint-eviction:0.2.0 .
#
# By tag it is what Debian and Python have fixed since; by digest it is what was tested:
#
#   docker build --build-arg PYTHON_DIGEST=sha256:<...> --build-arg REVISION="$(git rev-parse HEAD)" .
#
# Slim, not distroless: the same Debian and the same Python in both stages, so that wheels, the interpreter's path in
# /opt and the bytecode fit, and one digest pins it all. The shell that comes with it is used by nothing.
ARG PYTHON_TAG=3.11-slim
ARG PYTHON_DIGEST=

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# pip works on this environment from outside: it never gets into it.
RUN python -m venv --without-pip /opt/taint-eviction
# requirements.lock says in its head how it is made. Wheels only: nobody else's code runs while this is built.
COPY requirements.lock ./
RUN pip --python /opt/taint-eviction install --require-hashes --no-deps --only-binary=:all: --no-compile --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
# The controller, and the verbs for people who have a cluster but no Python: no laboratory, no fake API server.
COPY operator/taint_eviction ./operator/taint_eviction
COPY operator/taint_eviction_ctl ./operator/taint_eviction_ctl
RUN pip --python /opt/taint-eviction install --no-deps --no-index --no-build-isolation --no-compile .
# It has built the line above (its version is locked like all others) and has nothing to do at run time.
RUN pip --python /opt/taint-eviction uninstall --yes setuptools
# Of the Kubernetes client's generated code, 120 MB, only what is ever imported: it loads the rest when it is asked for.
# Kopf asks for the three models of metadata. A test imports everything from what is left.
RUN cd /opt/taint-eviction/lib/python3.*/site-packages/kubernetes && rm -r client/api aio/client/api && \
    find client/models aio/client/models -type f ! -name __init__.py ! -name v1_object_meta.py \
        ! -name v1_owner_reference.py ! -name v1_managed_fields_entry.py -delete
# Bytecode that is never compared with its source: the file system is read-only. One process and one seed: two builds
# write the same bytes, -f those as well that were written when the controller was built.
RUN PYTHONHASHSEED=0 python -m compileall -q -f --invalidation-mode unchecked-hash /opt/taint-eviction/lib

FROM python:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG VERSION=0.2.0
ARG REVISION=
LABEL org.opencontainers.image.title="taint-eviction" \
      org.opencontainers.image.description="NoExecute taint-eviction controller for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Nothing is ever installed here again. The base image has no bytecode: without it each start compiles the standard
# library, which takes as long as all the rest.
RUN PYTHONDONTWRITEBYTECODE=1 pip uninstall --yes --root-user-action=ignore pip setuptools wheel && \
    rm -rf /usr/local/lib/python3.*/ensurepip && \
    PYTHONHASHSEED=0 python -m compileall -q -f --invalidation-mode unchecked-hash \
        -x '/(tests?|idlelib|lib2to3|site-packages|turtledemo)/' /usr/local/lib/python3.*
COPY --from=build /opt/taint-eviction /opt/taint-eviction
ENV PATH=/opt/taint-eviction/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/nonexistent \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONFAULTHANDLER=1
# A number, so that the kubelet can see that it is not root; above 10000, so that it is nobody on the node either.
USER 65532:65532
# Exec form: process 1 gets the kubelet's SIGTERM itself, and no shell is needed.
ENTRYPOINT ["taint-eviction"]
CMD ["run"]

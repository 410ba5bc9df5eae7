# A worker, or any other `trustfold` command. Python 3.12: every compiled dependency ships wheels for it.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
# The versions that the tests ran with, their hashes checked; uv stays behind in this stage.
RUN python -m venv --without-pip /opt/trustfold \
    && sed -n '/^uv==/,/^ *#/p' requirements.lock > /tmp/uv.txt \
    && pip install --no-cache-dir --require-hashes --no-deps --requirement /tmp/uv.txt \
    && uv pip install --no-cache --python /opt/trustfold/bin/python --compile-bytecode \
        --constraint requirements.lock --build-constraint requirements.lock '.[kafka,rocksdb,web,metrics,otel]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/trustfold trustfold
# The history is a volume of its own; what is mounted here must belong to the user.
RUN install --directory --owner trustfold /var/lib/trustfold/.trustfold /var/lib/trustfold/.trustfold/history
COPY --from=build /opt/trustfold /opt/trustfold
ENV PATH=/opt/trustfold/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /var/lib/trustfold
# Local state of a worker (RocksDB, where it is used). Kafka's changelog topics are its home; losing this costs a recovery.
VOLUME /var/lib/trustfold
ENTRYPOINT ["trustfold"]
CMD ["--help"]

# CPU only. `docker run IMAGE` runs the quickstart; arguments go to it (`docker run IMAGE -n 5000 --n-episodes 500`), and
# `docker run --entrypoint sb3-camp IMAGE certify --help` runs a command. `-v camp:/results` keeps what it makes in the volume `camp`;
# `-v "$PWD/out:/results/quickstart"` in the folder `out`, which must be there and writable for the user 1000.
FROM python:3.12-slim

WORKDIR /opt/sb3_camp
COPY . .
# PyTorch first, from the index that has it without CUDA, if the build is told of one: --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX=
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir -c constraints.txt . \
    && useradd --create-home --uid 1000 camp && mkdir /results && chown camp /results

USER camp
WORKDIR /results
ENV OMP_NUM_THREADS=1
ENTRYPOINT ["python", "/opt/sb3_camp/zoo_scripts/quickstart.py"]

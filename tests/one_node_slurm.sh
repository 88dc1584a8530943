#!/bin/sh
# A Slurm of one node on this machine, for the test of studies: Debian's packages, configured and started if the rights are there.
set -eu
if scontrol ping >/dev/null 2>&1; then
    echo "Slurm answers: $(sinfo -h -o '%P, %D node, %C CPUs (allocated/idle/other/total)')"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "No Slurm, and not the rights to set one up: its test will be skipped"
    exit 0
fi
if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    command -v apt-get >/dev/null || { echo "No Slurm and no apt-get to install one: its test will be skipped"; exit 0; }
    apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge
fi
host=$(hostname -s)
if [ ! -e /etc/slurm/slurm.conf ]; then
    cpus=$(nproc)
    cat > /etc/slurm/slurm.conf <<END
ClusterName=one
SlurmctldHost=$host
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=/var/spool/slurm/controller
SlurmdSpoolDir=/var/spool/slurm/node
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ReturnToService=2
MinJobAge=300
# At least four jobs at once, also on two cores
SlurmdParameters=config_overrides
NodeName=$host CPUs=$((cpus < 4 ? 4 : cpus)) RealMemory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo) State=UNKNOWN
PartitionName=one Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
fi
mkdir -p /var/spool/slurm/controller /var/spool/slurm/node /var/log/slurm /run/munge
chown munge: /run/munge
pgrep -x munged >/dev/null || runuser -u munge -- munged
pgrep -x slurmctld >/dev/null || slurmctld
pgrep -x slurmd >/dev/null || slurmd
for _ in 1 2 3 4 5 6 7 8 9 10; do
    scontrol ping 2>/dev/null | grep -q UP && sinfo -h -o %T | grep -Eq "idle|mixed|allocated" && break
    sleep 1
done
scontrol update NodeName="$host" State=RESUME 2>/dev/null || true
sinfo

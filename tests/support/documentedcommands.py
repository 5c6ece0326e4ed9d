"""The commands of README.md, CONTRIBUTING.md and the pages below docs/, as they are written there, and how tests run each.

A command is a line of a code block marked `sh`, or inline code that begins with one of our programs and goes on. Each must be
in COMMANDS, which says how it is run or where else; a new one is added there with its page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PROGRAM = re.compile(
    r"(?:\w+=\S+ )*(?:mq(?:admin|broker|controller|namesrv|replay)|scripts/[\w-]+|python -m|docker) +\S"
)
"""What makes inline code or a line of an unmarked block a command; a program alone, as in `mqadmin`, is only its name."""


@dataclass(frozen=True)
class Run:
    """Run here: `shows` is in what it prints. `options` go to its end, each `instead` pair into its text."""

    shows: str
    options: str = ""
    instead: tuple[tuple[str, str], ...] = ()
    folder: str = "."


@dataclass(frozen=True)
class Elsewhere:
    """Not run here: `why` names the test that does, or what it needs."""

    why: str


STATUS = "scripts/cluster status --dir run/demo"
KILL_MASTER = f"""scripts/cluster kill --dir run/demo "$({STATUS} | awk '$5 == "master" {{print $1}}')\""""
UP, DOWN = "scripts/cluster up --dir run/demo", "scripts/cluster down --dir run/demo --remove"

PLAIN_ACL = "conf/plain_acl.yml,conf/acl", f"{ROOT}/tests/unit/mqadmin/plain_acl.yml"
STORE, LAKE = ("/data/broker-a", "run/demo/broker-0"), ("/lake", "lake")

TOPIC = "mqadmin updateTopic -n NAMESRV -c DefaultCluster -t orders"
COMMANDS: dict[str, Run | Elsewhere] = {
    UP: Elsewhere("the fixture `cluster`"),
    DOWN: Elsewhere("the fixture `cluster`"),
    **{
        line: Elsewhere("test_a_tutorial_prints_what_it_shows")
        for line in (
            ". .venv/bin/activate",
            f"{UP} --base-port 9876",
            "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders",
            "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t deliveries",
            "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t clicks",
            "python first.py",
            "mqadmin topicStatus -n 127.0.0.1:9876 -t orders",
            "mqadmin queryMsgByKey -n 127.0.0.1:9876 -t orders -k 7",
            "mqadmin getSyncStateSet -a '127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879' -b broker-a",
            "python failover.py &",
            "sleep 2",
            KILL_MASTER,
            "wait",
            "mqadmin getBrokerEpoch -n 127.0.0.1:9876 -b broker-a",
            "scripts/cluster start --dir run/demo",
            "python fill.py",
            "mqreplay scan run/demo/broker-0",
            "mqreplay export run/demo/broker-0 --to run/clicks -o topic=clicks",
        )
    },
    "python clicks.py": Elsewhere("tests/spark/test_data_source_requests.py"),
    "scripts/docs build": Elsewhere("tests/architecture/test_site.py"),
    "scripts/docs serve": Elsewhere("serves until it is ended"),
    "scripts/check --fix": Elsewhere("changes the sources"),
    "scripts/test ha": Elsewhere("runs tests"),
    "python -m pytest tests/unit/ha -k NAME": Elsewhere("runs tests"),
    STATUS: Run("broker-a, id 1, "),  # all names of a broker in one line
    "mqadmin --version": Run("mqadmin "),
    "systemctl enable --now mqnamesrv mqcontroller mqbroker@a": Elsewhere(
        "machines with systemd; tests/unit/localcluster/test_three_machines_page.py loads the files"
    ),
    "mqadmin watch --once -n '10.0.0.11:9876;10.0.0.12:9876;10.0.0.13:9876'": Run(
        "master", instead=(("'10.0.0.11:9876;10.0.0.12:9876;10.0.0.13:9876'", "NAMESRV"),)
    ),
    TOPIC: Elsewhere("the test of programs for Python"),
    "scripts/drill kill --count 5 --dir run/demo": Run("lost 0", instead=(("--count 5", "--count 1"),)),
    "scripts/drill kill --count 20": Elsewhere(
        "the drill before this one, on a cluster of its own and for longer"
    ),
    "scripts/drill partition --count 20": Elsewhere("tests/process/test_partitions.py, for short ones"),
    "scripts/drill KIND --count N --seed S": Run(
        "partition", instead=(("KIND --count N --seed S", "--help"),)
    ),
    "scripts/cluster up --mode raft --dir run/raft": Elsewhere(
        "tests/process/test_raft_mode.py, as a library"
    ),
    "scripts/cluster down --dir run/raft --remove": Elsewhere("the fixture `cluster`, of another folder"),
    "scripts/drill kill --count 20 --mode raft": Elsewhere("test_raft_mode.py, one of each kind"),
    "scripts/quickstart --mode raft": Elsewhere("takes a minute; test_raft_mode.py has what it does"),
    **{
        f"python -m dledger {line} --group broker-a --peers PEERS": Elsewhere("test_raft_mode.py")
        for line in ("status", "members", "transfer")
    },
    **{
        f"python -m dledger {line.replace(' ', ' --group broker-a --peers PEERS ')}": Elsewhere(
            "tests/cluster/test_raft_mode_members.py, on virtual time"
        )
        for line in ("add n3-HOST:PORT", "remove n2")
    },
    **{
        line: Elsewhere("tests/interop/test_java_fleets.py runs docs/migration.md")
        for line in (
            "cp -a --sparse=always STORE STORE.java",
            "python -m dledger inspect STORES",
            "mqadmin clusterList -n NAMESRV",
            "mqadmin getSyncStateSet -a CONTROLLERS -b broker-a",
            "mqreplay verify STORE",
        )
    },
    "scripts/interop --page": Elsewhere("takes half an hour; tests/interop has what it does, in short"),
    "scripts/interop --only migration": Elsewhere("tests/interop/test_java_fleets.py, once"),
    "python -m scripts.bench.handover": Run("--sets", "--help"),
    "python -m scripts.bench.handover --sets 1 --only elect --runs 17": Run("--runs", "--help"),
    "python -m scripts.bench.handover --sets 1 --only elect --sides ours-c,java-c": Run("java-c", "--help"),
    "scripts/soak --hours 1": Elsewhere("tests/process/test_soak.py, for seconds"),
    "scripts/soak --hours 1 --seed 20261123": Elsewhere("tests/process/test_soak.py, for seconds"),
    "scripts/soak --hours N --seed S --out FILE": Elsewhere("tests/process/test_soak.py"),
    "scripts/quickstart": Elsewhere("takes minutes and needs Java; tests/spark has its Spark step"),
    "scripts/quickstart --secure": Elsewhere("takes a minute; test_secure_cluster.py has what it does"),
    "scripts/drill elect --secure --count 10": Elsewhere("test_secure_cluster.py, one of each kind"),
    **{
        f"python -m mqruntime.certificates {line}": Elsewhere("tests/unit/mqruntime/test_certificates.py")
        for line in (
            "ca pki",
            "server pki broker-a-1 10.0.0.11 broker-a-1.example --role broker/broker-a",
            "client pki tools",
        )
    },
    "python -m mqruntime.passwords pki": Run("pki/servers.json"),
    # these users work while access control is off; tests/cluster/test_access_control.py has it on
    **{
        f"mqadmin {line} -p -": Run("success", instead=(("mqadmin", "MQ_NEW_PASSWORD=secret mqadmin"),))
        for line in (
            "createUser -n NAMESRV -c DefaultCluster -u administrator -t Super",
            "createUser -n NAMESRV -c DefaultCluster -u shop",
            "createUser -n NAMESRV -c DefaultCluster -u billing",
            "createUser -n NAMESRV -c DefaultCluster -u NEW -t Super",
            "updateUser -n NAMESRV -c DefaultCluster -u shop",
            "updateUser -b BROKER -u administrator",
        )
    },
    **{
        f"mqadmin createAcl -n NAMESRV -c DefaultCluster -s User:{line} -d Allow": Run("success")
        for line in ("shop -r Topic:orders -a Pub", "billing -r Topic:orders,Group:billing -a Sub")
    },
    "mqadmin listUser -b BROKER": Run("#UserName"),
    "mqadmin listAcl -b BROKER": Run("#Subject"),
    "mqadmin importPlainAcl -f conf/plain_acl.yml,conf/acl": Run("Nothing was created", instead=(PLAIN_ACL,)),
    "mqadmin importPlainAcl -f conf/plain_acl.yml,conf/acl -n NAMESRV -c DefaultCluster --apply": Run(
        "success", instead=(PLAIN_ACL,)
    ),
    "mqadmin copyUser -f JAVA -t BROKER": Elsewhere("tests/unit/mqadmin/test_admin_access.py"),
    "mqadmin copyAcl -f JAVA -t BROKER": Elsewhere("tests/unit/mqadmin/test_admin_access.py"),
    "mqadmin compareAcl -b BROKER": Run(""),
    "scripts/quickstart --install-java": Elsewhere("installs packages of the system"),
    "scripts/test": Elsewhere("runs this test"),
    "scripts/test --long": Elsewhere("runs tests"),
    "scripts/test unit crash": Elsewhere("runs tests"),
    "scripts/prove --only cluster --with learner --with transactions --minutes 5": Elsewhere(
        "test_prove.py, for seeds that are shorter"
    ),
    "scripts/prove --minutes 15": Elsewhere("tests/simulation/test_prove.py, for a seed of each kind"),
    "scripts/prove --only ledger-images --first 1 --count 40": Elsewhere(
        "tests/simulation/test_prove.py, for one seed"
    ),
    "python -m simulation.controllers.world --seeds 100 --first 1": Run("--seeds", "--help"),
    **{
        f"python -m dledger {line}": Elsewhere("test_ledger_commands.py")
        for line in (
            "serve --peers PEERS --id n0 --store run/n0",
            "append --peers PEERS hello world",
            "get --peers PEERS 2",
            "transfer --peers PEERS n1",
            "status --peers PEERS",
            "members --peers PEERS",
            "add --peers PEERS n3-127.0.0.1:20914 --dry-run",
            "add --peers PEERS n3-127.0.0.1:20914",
            "remove --peers PEERS n0",
        )
    },
    "python -m dledger --help": Run("serve"),
    "python -m dledger inspect run/n0": Elsewhere("tests/unit/dledger/test_inspection.py"),
    "python -m dledger inspect STORE0 STORE1 STORE2": Elsewhere("tests/interop/test_java_controllers.py"),
    "python -m raftstore inspect STORE": Elsewhere("tests/unit/raftstore/test_message_log.py"),
    "python -m raftstore adopt -c broker-0.conf STORE": Elsewhere("test_raft_mode_takeover.py"),
    "python -m raftstore give-back -c java-n0.conf STORE": Elsewhere("tests/interop/test_java_raft_mode.py"),
    "docker compose -f deploy/compose.yaml up --build": Elsewhere(
        "tests/unit/mqruntime/test_deployment_files.py"
    ),
    # the cluster's own processes were started so; here the settings are only printed
    "mqnamesrv -c namesrv.conf": Run("listenPort=", "-p", folder="run/demo"),
    "mqcontroller -c controller-0.conf": Run("controllerDLegerSelfId=n0", "-p", folder="run/demo"),
    "mqbroker -c broker-0.conf": Run("brokerName=broker-a", "-p", folder="run/demo"),
    "mqbroker -c broker-0.conf --log-file logs/mqbroker.log": Run(
        "brokerName=broker-a", "-p", folder="run/demo"
    ),
    "mqadmin --help": Run("getSyncStateSet"),
    "mqadmin help COMMAND": Run("usage: mqadmin haStatus", instead=(("COMMAND", "haStatus"),)),
    "mqreplay --help": Run("export"),
    # the figures take minutes: here their commands only start
    "python -m scripts.bench.startup": Run("--runs", "--help"),
    "python -m scripts.bench.ledger": Run("--behind", "--help"),
    "python -m scripts.bench.statechanges": Run("--changes", "--help"),
    "python -m scripts.bench.snapshots": Run("--mib", "--help"),
    "python -m scripts.bench.footprint": Run("--seconds", "--help"),
    "python -m scripts.bench.java_outage": Run("--count", "--help"),
    "python -m scripts.bench.java_outage --sides ours-raft,java-raft --count 20": Run("ours-raft", "--help"),
    "python -m scripts.bench.cli": Run("--runs", "--help"),
    "python -m scripts.bench.connections": Run("--connections", "--help"),
    "python -m scripts.bench.replaylog": Run("--body", "--help"),
    "python -m scripts.bench.decode": Run("--runs", "--help"),
    "python -m scripts.bench.decode --runs 5": Run("--runs", "--help"),
    "python -m scripts.bench.sparkread --runs 5": Run("--runs", "--help"),
    "python -m scripts.bench.growth": Run("--runs", "--help"),
    "python -m scripts.bench.growth --topics 0 --topics 10000 --seconds 2": Run("--topics", "--help"),
    "python -m scripts.bench.floods --runs 1": Run("--runs", "--help"),
    "python -m scripts.bench.security": Run("--handshakes", "--help"),
    "python -m scripts.bench.security --skip-java": Run("--runs", "--help"),
    "python -m scripts.bench.resend": Run("--runs", "--help"),
    "python -m scripts.bench.promotion --runs 3": Run("--runs", "--help"),
    "python -m scripts.bench.controllers": Run("--quick", "--help"),
    "python -m scripts.bench.dledger": Run("--body", "--help"),
    "python -m scripts.bench.dledger --seconds 4 --warm-up 10": Run("--body", "--help"),
    "python -m scripts.bench.controllers --quick --runs 1 --slow-sync-ms 0 --failovers 100": Run(
        "--hand-overs", "--help"
    ),
    "scripts/linearizable --seconds 60 --seed 1": Elsewhere("test_linearizable.py, for a few strikes"),
    "scripts/linearizable --strikes 200 --seed 20261128": Elsewhere("test_linearizable.py, for six"),
    "python -m scripts.bench.send": Run("--warm-up", "--help"),
    "python -m scripts.bench.send --profile": Run("--warm-up", "--help"),
    "python -m scripts.bench.catchup": Run("--bytes", "--help"),
    "python -m scripts.bench.stopped": Run("--settings", "--help"),
    "python -m scripts.bench.dispatch --runs 3": Run("--body", "--help"),
    "python -m scripts.bench.restart --runs 3": Run("--load", "--help"),
    "python -m scripts.bench.slavepath --bytes 256m": Run("--messages", "--help"),
    "python -m scripts.bench.send --only push --sides ours-c,java-a": Run("--warm-up", "--help"),
    "python -m scripts.bench.transactions": Run("--threads", "--help"),
    "python -m scripts.bench.sendpath": Run("--groups", "--help"),
    "python -m scripts.bench.pullpath": Run("--pulls", "--help"),
    "python -m scripts.bench.send --only pull,push --runs 1 --seconds 8 --warm-up 12 --sides ours-c,java-a": Run(
        "--only", "--help"
    ),
    "python -m scripts.bench.send --sides ours-raft,java-raft --only 256 --runs 3 --seconds 6 --warm-up 15": Run(
        "--sides", "--help"
    ),
    "python -m scripts.bench.filters": Run("--runs", "--help"),
    "python -m scripts.bench.handback": Run("usage", "--help"),
    "python -m scripts.comparefilters": Run("--seed", "--help"),
    "scripts/fuzz --seconds 60 --seed 1": Elsewhere(
        "tests/simulation/test_fuzz.py, for 150 inputs a decoder"
    ),
    "scripts/soak --mode raft --hours 0.1667 --seed 20261124 --segment 8388608": Elsewhere(
        "tests/process/test_soak.py, for seconds"
    ),
    "mqadmin watch": Run("--once", "--help"),
    "mqreplay scan": Run("mqreplay scan", "--help"),
    "mqreplay export": Run("mqreplay export", "--help"),
    "mqreplay scan /data/broker-a": Run("committed  up to", instead=(STORE,)),
    "mqreplay export /data/broker-a --to /lake/orders": Run("export is done", instead=(STORE, LAKE)),
    "mqreplay export /data/broker-a --to /lake/orders --append": Run("export", instead=(STORE, LAKE)),
    "mqreplay scan /data/broker-a --engine spark --master spark://host:7077 --conf spark.executor.memory=512m": (
        Elsewhere("tests/spark/test_commands.py, on a cluster of its own")
    ),
    "mqreplay verify /data/broker-a": Run("nothing is wrong", instead=(STORE,)),
    "mqreplay verify /data/broker-a /data/broker-b": Run(
        "compared", "--compare-only", instead=(STORE, ("/data/broker-b", "run/demo/broker-1"))
    ),
    "mqreplay stats /data/broker-a --html stats.html --top 3": Run("drawn in stats.html", instead=(STORE,)),
    "mqreplay resend /data/broker-a --topic orders --to DefaultCluster/orders-again -n NAMESRV": Elsewhere(
        "test_resend.py, on a cluster of its own"
    ),
    "mqreplay package --to reader.zip": Run("spark-submit --py-files"),
    "mqadmin watch -n NAMESRV": Elsewhere("needs a terminal; the last test of this file gives it one"),
    "mqadmin watch -n NAMESRV -b broker-a": Elsewhere("the same, and test_raft_mode.py for one look"),
    "mqadmin watch -n NAMESRV --once": Run("broker-a of DefaultCluster"),
    "mqadmin getControllerMetaData -a CONTROLLER": Run("#ControllerLeaderId"),
    "mqadmin getSyncStateSet -a CONTROLLER -b broker-a": Run("#SyncStateSetNums"),
    "mqadmin haStatus -n NAMESRV -c DefaultCluster": Run("#MasterCommitLogMaxOffset"),
    "mqadmin updateBrokerConfig -k enablePropertyFilter -v true": Run(
        "success", "-n NAMESRV -c DefaultCluster"
    ),
    "mqadmin updateBrokerConfig -n NAMESRV -c DefaultCluster -a true -k KEY -v VALUE": Run(
        "success", instead=(("KEY", "deleteWhen"), ("VALUE", "04"))
    ),
    "mqadmin getBrokerEpoch -n NAMESRV -b broker-a": Run("#Epoch: EpochEntry{epoch=1"),
    "mqadmin deleteExpiredCommitLog -n NAMESRV -c DefaultCluster": Run("success"),
    "mqadmin cleanExpiredCQ -n NAMESRV -c DefaultCluster": Run("success"),
    "mqadmin cleanBrokerMetadata -a CONTROLLERS -b OLD_ID -bn broker-a -c DefaultCluster": Elsewhere(
        "test_admin_on_a_cluster.py"
    ),
    "mqadmin resyncBroker -b REPLICA -d": Elsewhere("test_admin_on_a_cluster.py"),
    "mqadmin resyncBroker -b REPLICA": Elsewhere("test_admin_on_a_cluster.py"),
    "mqadmin brokerStatus -b BROKER": Run("openTransactions"),
    "mqadmin consumeMessage -n NAMESRV -t RMQ_SYS_TRANS_HALF_TOPIC": Run("RMQ_SYS_TRANS_HALF_TOPIC"),
    "mqadmin leadershipTransfer -a CONTROLLERS": Run("#FormerLeaderId"),
    "mqadmin removeController -a CONTROLLERS -i n2": Elsewhere("test_replaced_controllers.py"),
    "mqadmin addController -a CONTROLLERS -m n3-HOST:PORT": Elsewhere("test_replaced_controllers.py"),
    "mqadmin electMaster -a CONTROLLERS -b BROKER_ID -bn broker-a -c DefaultCluster": Run(
        "#BrokerMasterAddr"
    ),
    "mqadmin updateBrokerConfig -b BROKER -k allowTruncationTo -v OFFSET": Run(
        "success", instead=(("OFFSET", "0"),)
    ),
    'eval "$(_MQADMIN_COMPLETE=bash_source mqadmin)"': Run("_mqadmin_completion", "; complete -p mqadmin"),
    'eval "$(_MQADMIN_COMPLETE=zsh_source mqadmin)"': Run("#compdef mqadmin", instead=(("eval", "echo"),)),
    "_MQADMIN_COMPLETE=fish_source mqadmin | source": Run("complete", instead=(("| source", "| cat"),)),
}


def documented() -> dict[str, str]:
    """Command, comment and spare blanks taken away -> the document it is in."""
    found: dict[str, str] = {}
    for document in DOCUMENTS:
        text = document.read_text()
        lines = [line for kind, body in BLOCK.findall(text) if kind == "sh" for line in body.splitlines()]
        lines += [code for code in INLINE.findall(BLOCK.sub("", text)) if PROGRAM.match(code)]
        for line in lines:
            command = " ".join(re.sub(r"(^| +)# .*", "", line).split())
            if command:
                found.setdefault(command, document.name)
    return found

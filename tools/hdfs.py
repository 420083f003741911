"""A real HDFS on loopback: the mini cluster that Hadoop's own tests use, spoken to through WebHDFS.

Its jars come from Maven Central once and are kept in `tools_directory()`.
"""

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers import ToolMissingError, free_port, tools_directory

HADOOP = "3.4.1"
# The last three are what WebHDFS needs on a Java that no longer brings them; without them it answers 500.
ARTIFACTS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
    "org.mockito:mockito-core:4.11.0",
    "junit:junit:4.13.2",
    "org.slf4j:slf4j-simple:1.7.36",
    "javax.xml.bind:jaxb-api:2.3.1",
    "com.sun.xml.bind:jaxb-impl:2.3.9",
    "javax.activation:activation:1.1.1",
)
MAIN_CLASS = "org.apache.hadoop.test.MiniDFSClusterManager"
START_SECONDS = 120  # a JVM on a busy machine


@contextmanager
def start_hdfs(directory: Path) -> Iterator[str]:
    """A name node and one data node that keep their data in `directory`; yields host:port of WebHDFS.

    Raises:
        ToolMissingError: there is no Java or Maven, or the jars could not be fetched.
        TimeoutError: it does not come up.
    """
    jars = hadoop_jars()
    directory.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    command = [
        *("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-Dtest.build.data={directory}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        *("-cp", f"{jars}/*", MAIN_CLASS, "-format", "-datanodes", "1"),
        *("-nnport", str(free_port()), "-httpport", address.rpartition(":")[2]),
        *("-D", "dfs.permissions.enabled=false", "-D", f"hdfs.minidfs.basedir={directory}"),
    ]
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _await_data_node(server, address)
            yield address
        finally:
            server.kill()


def hadoop_jars() -> Path:
    """The folder with the jars, fetched if it is not there yet; raises ToolMissingError."""
    folder = tools_directory() / f"hadoop-{HADOOP}"
    if shutil.which("java") is None:
        raise ToolMissingError("java is not installed; on Debian: apt install default-jre-headless")
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise ToolMissingError("mvn is not installed; on Debian: apt install maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as building:
        Path(building, "pom.xml").write_text(_pom())
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        done = subprocess.run(command, check=False, cwd=building, capture_output=True, text=True)
        if done.returncode:
            raise ToolMissingError(f"{' '.join(command)}: {done.stdout.strip()[-2000:]}")
        if not folder.exists():  # another run was not faster
            os.rename(Path(building, "jars"), folder)
    return folder


def _pom() -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _await_data_node(server: "subprocess.Popen[bytes]", address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        if _live_data_nodes(address):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the HDFS at {address} has no data node (exit status {server.poll()})")


def _live_data_nodes(address: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
        beans = json.loads(connection.getresponse().read())["beans"]
    except (OSError, http.client.HTTPException, ValueError):
        return 0
    finally:
        connection.close()
    return int(beans[0]["NumLiveDataNodes"]) if beans else 0

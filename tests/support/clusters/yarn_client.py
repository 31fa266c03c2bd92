"""What Spark's client asks YARN to start, made by its own classes without a ResourceManager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """The container of a driver."""

    command: str
    environment: dict[str, str]
    files: dict[str, str]
    """Who may read each file that comes with it."""
    properties: str
    """Spark properties of the application."""


def launch_of(
    gateway: Any, words: Sequence[str], environment: Mapping[str, str], staging: str
) -> Launch:
    """:param gateway: py4j's, of a JVM with Spark's jars.
    :param words: the command line of spark-submit, without the program.
    :param environment: variables that spark-submit reads.
    :param staging: URI of the folder that stands for HDFS's.
    """
    jvm = gateway.jvm
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    listed, mapped = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
    for word in words:
        listed.add(word)
    for name, value in environment.items():
        mapped.put(name, value)
    variables = getattr(jvm.scala.collection.immutable.Map, "from")(converters.asScala(mapped))
    deploy = jvm.org.apache.spark.deploy
    given = deploy.SparkSubmitArguments(converters.asScala(listed).toSeq(), variables)
    submit = deploy.SparkSubmit()
    no_hadoop = getattr(submit, "prepareSubmitEnvironment$default$2")()
    prepared = submit.prepareSubmitEnvironment(given, no_hadoop)
    assert prepared._4() == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    child = list(converters.asJava(prepared._1()))
    array = gateway.new_array(jvm.java.lang.String, len(child))
    for i, word in enumerate(child):
        array[i] = word
    conf = prepared._3()
    client = deploy.yarn.Client(deploy.yarn.ClientArguments(array), conf, None)
    known = {
        "$appId": jvm.org.apache.hadoop.yarn.api.records.ApplicationId.newInstance(1, 2),
        "$stagingDirPath": jvm.org.apache.hadoop.fs.Path(staging),
    }
    for field in client.getClass().getDeclaredFields():
        for name, value in known.items():  # submitApplication, which needs a ResourceManager
            if field.getName().endswith(name):
                field.setAccessible(True)
                field.set(client, value)
    [method] = [
        each
        for each in client.getClass().getDeclaredMethods()
        if each.getName() == "createContainerLaunchContext"
    ]
    method.setAccessible(True)
    context = method.invoke(client, gateway.new_array(jvm.java.lang.Object, 0))
    resources = dict(context.getLocalResources())
    return Launch(
        command=" ".join(context.getCommands()),
        environment=dict(context.getEnvironment()),
        files={name: each.getVisibility().toString() for name, each in resources.items()},
        properties=conf.toDebugString(),
    )

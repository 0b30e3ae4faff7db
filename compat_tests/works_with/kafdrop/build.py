"""Builds Kafdrop's jar from its source.

    python -m compat_tests.works_with.kafdrop.build SOURCE

SOURCE is a clone of its repository. Confluent's serializers are not in Maven Central: classes that refuse take their
place, so the formats that need a schema registry are missing. The jar lands in the program's cache; with a jar from
elsewhere in the environment variable KAFDROP_JAR, nothing has to be built.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.works_with.program import Program, read_program

FOLDER = Path(__file__).parent
PACKAGE = "io.confluent.kafka.serializers"
NAMES = ("SCHEMA_REGISTRY_URL_CONFIG", "BASIC_AUTH_CREDENTIALS_SOURCE", "USER_INFO_CONFIG")
REFUSES = 'throw new UnsupportedOperationException("built without the formats of a schema registry");'


def built_jar(program: Program) -> Path:
    """The place of the jar that is built."""
    return program.cache / f"kafdrop-{program.version}.jar"


def stubs() -> dict[str, str]:
    """Classes that stand for Confluent's, by their path."""
    constants = " ".join(f'public static final String {name} = "{name}";' for name in NAMES)
    configure = "public void configure(java.util.Map<String, ?> config, boolean isKey) {} "
    read = f"{configure}public Object deserialize(String topic, byte[] data) {{ {REFUSES} }}"
    write = f"{configure}public byte[] serialize(String topic, Object value) {{ {REFUSES} }}"
    classes = {
        "AbstractKafkaSchemaSerDeConfig": constants,
        "AbstractKafkaAvroSerDeConfig": constants,
        "KafkaAvroDeserializer": read,
        "KafkaAvroSerializer": write,
        "protobuf.KafkaProtobufDeserializer": read,
    }
    found = {}
    for name, body in classes.items():
        package, _, simple = f"{PACKAGE}.{name}".rpartition(".")
        kind = f"{simple}<T extends com.google.protobuf.Message>" if "Protobuf" in simple else simple
        path = f"src/main/java/{package.replace('.', '/')}/{simple}.java"
        found[path] = f"package {package};\n\npublic class {kind} {{ {body} }}\n"
    return found


def build(source: Path) -> None:
    """Build the jar of the tag that program.toml names."""
    program = read_program(FOLDER)
    with tempfile.TemporaryDirectory() as work:
        archive = subprocess.run(
            ["git", "-C", str(source), "archive", program.version], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", work], input=archive.stdout, check=True)
        for path, text in stubs().items():
            (Path(work) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(work) / path).write_text(text)
        pom = Path(work) / "pom.xml"
        text = re.sub(r"<repositories>.*?</repositories>", "", pom.read_text(), flags=re.DOTALL)
        dependency = r"<dependency>\s*<groupId>io\.confluent</groupId>.*?</dependency>"
        annotations = (
            "<dependency><groupId>org.jetbrains</groupId><artifactId>annotations</artifactId>"
            "<version>26.0.2</version><scope>provided</scope></dependency>"
        )
        text = re.sub(dependency, "", text, flags=re.DOTALL)
        pom.write_text(text.replace("</dependencies>\n\n    <build>", f"{annotations}</dependencies>\n\n    <build>"))
        subprocess.run(["mvn", "-q", "-B", "package", "-Dmaven.test.skip=true"], cwd=work, check=True)
        jar = built_jar(program)
        jar.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(work) / "target" / f"kafdrop-{program.version}.jar", jar)
    print(jar)


if __name__ == "__main__":
    build(Path(sys.argv[1]))

"""Deployments, builds and instances of the service, on both databases."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from graftline.core.errors import ConfigError, RecordError
from graftline.core.hashing import sha256_text
from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import builds, metadata
from tests.harbor_parts import deployed, deployment, encoded, service, until

AT = "/api/harbor/deployments"


def test_the_first_step_makes_the_tables_of_version_0_1_0() -> None:
    """Whoever changes a table writes out in that step what it was, and adds another."""
    made = [str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in metadata.sorted_tables]
    indexes = [index for table in metadata.sorted_tables for index in table.indexes]
    made += sorted(str(CreateIndex(index).compile(dialect=postgresql.dialect())) for index in indexes)
    assert sha256_text("\n".join(made)) == "10cb0b5b81167971e6c2af733b0ca1e3bece81d66126345f13e6184f35da4e0c"


def test_the_migrations_make_the_tables_that_are_written_to(database_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Database(database_url) as database, database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_database_is_opened_by_many_at_the_same_time(database_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        for database in threads.map(Database, [database_url] * 4):
            database.close()


def test_a_database_of_a_later_version_is_refused(database_url: str) -> None:
    with Database(database_url) as database, database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'later'")
    with pytest.raises(RecordError, match=r"was written by a later version of graftline \('later'\)"):
        Database(database_url)


def test_a_url_of_another_database_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match=r"neither sqlite:///<file> nor postgresql://") as error:
        Database("mysql://me:secret-word@host/name")
    assert "secret-word" not in str(error.value)


def test_the_same_context_is_the_same_version_and_another_one_the_next(database_url: str) -> None:
    with service(database_url) as client:
        first = client.post(AT, json=deployment()).json()
        again = client.post(AT, json=deployment()).json()
        second = client.post(AT, json=deployment(text="print(2)\n")).json()
        assert (first["id"], first["version"]) == (again["id"], 1)
        assert (second["version"], second["id"] == first["id"]) == (2, False)
        assert client.get(f"{AT}/demo").json()["id"] == second["id"]
        assert client.get(f"{AT}/{first['id']}").json()["version"] == 1
        page = client.get(AT).json()
        assert ([one["version"] for one in page["deployments"]], page["total"]) == ([2, 1], 2)


def test_many_who_create_the_same_at_once_get_one_version_and_one_build(database_url: str) -> None:
    with service(database_url) as client:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: client.post(AT, json=deployment()), range(8)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["id"] for answer in answers}) == 1
        with Database(database_url) as database, database.reading() as connection:
            assert connection.execute(select(func.count()).select_from(builds)).scalar_one() == 1


def test_deployments_of_one_context_share_its_build(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        first = client.post(AT, json=deployment("one")).json()
        second = client.post(AT, json=deployment("two", metadata={"agent_type": "codex"})).json()
        assert first["id"] != second["id"]
        assert first["build_id"] == second["build_id"]


def test_a_build_is_made_again_by_force_alone(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        found = deployed(client)
        first = client.get(f"{AT}/{found}").json()["build_id"]
        assert client.post(f"{AT}/{found}/build", json={}).json()["build_id"] == first
        forced = client.post(f"{AT}/{found}/build", json={"force": True}).json()["build_id"]
        assert forced != first
        view = until(client, f"{AT}/{found}/status", lambda view: view["status"] == "ready")
        assert [build["id"] for build in view["builds"]] == [forced]


def test_a_deployment_never_changes_by_a_build(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        found = deployed(client)
        answer = client.post(f"{AT}/{found}/build", json={"context_tar_base64": encoded({"other": "1"})})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "other_context")


def test_what_is_not_built_does_not_run(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        view = client.post(AT, json=deployment(auto_build=False)).json()
        assert (view["status"], view["build_id"]) == ("pending", None)
        answer = client.post(f"{AT}/demo/rollout", json={"trace_correlation_id": "a"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_built")


def test_instances_are_made_once_per_seed(database_url: str) -> None:
    with service(database_url) as client:
        found = deployed(client)
        first = client.post(f"{AT}/{found}/instances/batch", json={"count": 3}).json()
        assert (first["created"], first["total"], first["ready_count"]) == (3, 3, 3)
        assert [(one["seed"], one["task_id"], one["status"]) for one in first["instances"]] == [
            (0, "0", "ready"),
            (1, "1", "ready"),
            (2, "2", "ready"),
        ]
        second = client.post(f"{AT}/{found}/instances/batch", json={"count": 3, "start_seed": 1}).json()
        assert (second["created"], second["total"]) == (1, 4)
        assert second["instances"][0]["id"] == first["instances"][1]["id"]
        assert client.post(f"{AT}/{found}/instances/build-all").json() == {"total_instances": 4, "ready_count": 4}


def test_instances_are_listed_page_by_page(database_url: str) -> None:
    with service(database_url) as client:
        found = deployed(client)
        client.post(f"{AT}/{found}/instances/batch", json={"count": 2500})
        seeds, cursor = [], None
        while True:
            parameters = {"limit": 1000} if cursor is None else {"limit": 1000, "cursor": cursor}
            page = client.get(f"{AT}/{found}/instances", params=parameters).json()
            seeds += [one["seed"] for one in page["instances"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seeds == list(range(2500))
        assert client.get(f"{AT}/{found}/instances", params={"status": "failed"}).json()["instances"] == []


def test_a_seed_stands_for_its_task_and_an_unknown_one_for_none(sqlite_url: str) -> None:
    tasks = [{"seed": 4, "task_id": "df-001"}, {"seed": 9, "task_id": "df-002"}]
    with service(sqlite_url) as client:
        found = deployed(client, tasks=tasks)
        made = client.post(f"{AT}/{found}/instances/batch", json={"seeds": [9, 4]}).json()
        assert [(one["seed"], one["task_id"]) for one in made["instances"]] == [(4, "df-001"), (9, "df-002")]
        answer = client.post(f"{AT}/{found}/instances/batch", json={"count": 5})
        assert (answer.status_code, answer.json()["error"]["details"]) == (404, {"seeds": [0, 1, 2, 3]})
        answer = client.post(f"{AT}/{found}/rollout", json={"trace_correlation_id": "a", "env": {"seed": 6}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_seed")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"context_tar_base64": "%%%"}, "not_base64"),
        ({"context_tar_base64": "AAAA"}, "archive"),
        ({"env_vars": {"A-B": "1"}}, "env_vars"),
        ({"env_vars": {"OPENAI_API_KEY": "a"}}, "secret"),
        ({"env_vars": {"MODE": "hf_" + "aB3dE5gH7j" * 4}}, "secret"),
        ({"metadata": {"deep": [{"a": "tml-" + "aB3dE5gH7j" * 4}]}}, "secret"),
        ({"dockerfile": "ENV KEY=glpat-" + "aB3dE5gH7j" * 3}, "secret"),
        ({"entrypoint": "a\0b"}, "invalid_request"),
        ({"tasks": [{"seed": 1, "task_id": "a"}, {"seed": 1, "task_id": "b"}]}, "tasks"),
        ({"tasks": [{"seed": 1, "task_id": "a", "agent_files": ["../b"]}]}, "tasks"),
    ],
)
def test_a_deployment_that_does_not_fit_is_refused(sqlite_url: str, change: dict[str, object], code: str) -> None:
    with service(sqlite_url) as client:
        answer = client.post(AT, json={**deployment(), **change})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
        assert "aB3dE5gH7j" not in answer.text
        assert client.get(AT).json()["total"] == 0

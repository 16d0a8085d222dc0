"""Names of data: what is the same, whatever it is called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import hospital

from accountant.budget.errors import Conflict, Invalid
from accountant.budget.population.naming import (
    MOST_STEPS,
    Data,
    check_spelling,
    joined,
    meant_by,
    normal_form,
)

WAREHOUSE = "postgres://warehouse", "clinic.public.visits"
SAME: list[tuple[tuple[str, str], tuple[str, str]]] = [
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.Visits")),
    (WAREHOUSE, ("postgres://warehouse", 'clinic."public"."visits"')),
    (WAREHOUSE, ("postgres://warehouse", " clinic . public.visits ")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.vi\u200bsits")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.vi\u00adsits\ufe0f")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.v\U000e0069isits")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.ｖｉｓｉｔｓ")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.vіѕіtѕ")),  # Cyrillic і and ѕ
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.\u202evisits")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.visits.")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.%76isits")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.%2576isits")),
    (WAREHOUSE, ("postgresql://warehouse", "clinic.public.visits")),
    (WAREHOUSE, ("PostgreSQL://Warehouse", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://warehouse:5432", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://warehouse:05432/", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://warehouse.", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://warehouse.:5432", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://reader:word@warehouse", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://wаrehouse", "clinic.public.visits")),  # Cyrillic а
    (WAREHOUSE, ("jdbc:postgresql://warehouse:5432/clinic?ssl=true", "public.visits")),
    (WAREHOUSE, ("postgresql+psycopg://warehouse/clinic/", "public.visits")),
    (("mysql://h:3306", "a.b"), ("mysql://h", "`A`.`B`")),
    (("sqlserver://h:1433", "a.dbo.b"), ("mssql://h;database=a", "[a].[dbo].[b]")),
    (("oracle://h:1521", "a.b"), ("oracle://h", "A.B")),
    (("redshift://h:5439", "a.b"), ("redshift://h", "A.B")),
    (("snowflake://org-account", "a.b.c"), ("snowflake://ORG\N{EN DASH}ACCOUNT:443", "A.B.C")),
    (("trino://h:8080", "a.b.c"), ("trino://h", "a.b.C")),
    (("hive://h:10000", "a.b"), ("jdbc:hive2://h", "a.B")),
    (("cassandra://h:9042", "k.t"), ("cassandra://h", "k.T")),
    (("clickhouse://h:8123", "k.t"), ("clickhouse://h", "k.t")),
    (("mongodb://b,a:27017", "k.t"), ("mongodb://A:27017,b", "k.t")),
    (("awsathena://athena.eu", "a.b"), ("athena://athena.eu", "a.B")),
    (("s3://bucket", "a/b.csv"), ("s3a://Bucket/", "/a/b.csv")),
    (("s3://bucket", "a/b.csv"), ("s3n://bucket/a", "./b.csv")),
    (("s3://bucket", "a/b.csv"), ("s3://bucket", "a//x/../b.csv/")),
    (("gs://bucket", "a"), ("gcs://bucket", "a")),
    (("hdfs://node:8020", "/a"), ("hdfs://node", "a")),
    (("file", "/data/a.csv"), ("file:///data", "a.csv")),
    (("file", "/data/a.csv"), ("file:/data", "a.csv")),
    (("file", "/data/a.csv"), ("file://localhost", "data/a.csv")),
    (("abfss://c@a.dfs.core.windows.net", "x"), ("wasbs://c@a.blob.core.windows.net", "x")),
    (("kafka://broker:9092", "visits"), ("kafka://Broker", "visits")),
    (("hospital", "visits"), ("Hospital ", "VISITS")),
    (("hospital", "visits"), ("h\N{CYRILLIC SMALL LETTER O}spital/", "visits")),
]
OTHER: list[tuple[tuple[str, str], tuple[str, str]]] = [
    (WAREHOUSE, ("postgres://warehouse", "clinic.public.visit")),
    (WAREHOUSE, ("postgres://warehouse", "clinic.private.visits")),
    (WAREHOUSE, ("postgres://warehouse:5433", "clinic.public.visits")),
    (WAREHOUSE, ("postgres://warehouse2", "clinic.public.visits")),
    (WAREHOUSE, ("mysql://warehouse", "clinic.public.visits")),
    (("s3://bucket", "a/b.csv"), ("s3://bucket", "a/B.csv")),
    (("s3://bucket", "a/b.csv"), ("s3://bucket", "a/b")),
    (("abfs://c@a.dfs.core.windows.net", "x"), ("abfs://d@a.dfs.core.windows.net", "x")),
    (("file", "/data/a"), ("file", "/data/A")),
    (("kafka://broker", "visits"), ("kafka://broker", "Visits")),
    (("hospital", "visits"), ("hospice", "visits")),
    (("hospital", "data1"), ("hospital", "datal")),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_data_have_one_form(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Another spelling of a namespace or a name is the same data."""
    assert normal_form(*one) == normal_form(*other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_data_have_another_form(one: tuple[str, str], other: tuple[str, str]) -> None:
    """What differs by more than spelling stays different."""
    assert normal_form(*one) != normal_form(*other)


SCHEMES = ["postgres", "postgresql", "mysql", "s3", "s3a", "file", "kafka", "abfss", "new", "HTTPS"]
LETTERS = st.characters(max_codepoint=0x2FFF) | st.sampled_from('./:@%?[]"`-_ аеіѕАВ\u200b\ufe0f0a')
TEXT = st.text(LETTERS, min_size=1, max_size=12)
NAMESPACES = TEXT | st.builds("{}://{}".format, st.sampled_from(SCHEMES), TEXT)


@given(NAMESPACES, TEXT)
@example("file", "%252e%2525")
@example("postgres://a:", '["a"].[b')
def test_the_form_of_a_form_is_itself(namespace: str, name: str) -> None:
    """Normal forms are their own: comparing them is comparing data."""
    form = normal_form(namespace, name)
    assert normal_form(*form) == form


ASCII = st.text(st.characters(max_codepoint=0x7F), max_size=12)


@given(ASCII | st.builds("{}://{}".format, st.sampled_from(SCHEMES), ASCII), ASCII)
@example("postgres://H:5432", " a\t. B%20")
def test_ascii_is_read_like_all_else(namespace: str, name: str) -> None:
    """What is read at once means what it does where each character has to be looked at, as with an
    invisible one behind it.
    """
    assert normal_form(namespace, name) == normal_form(f"{namespace}\u200b", f"{name}\u200b")


PLAIN = st.text("abcdefgh0123456789_", min_size=1, max_size=8)
TABLES = st.lists(PLAIN, min_size=1, max_size=3).map(".".join)
UNSEEN = [
    c
    for c in map(
        chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x2000, 0x2070), *range(0xFE00, 0xFE10)]
    )
    if not c.isspace() and unicodedata.category(c) in ("Cc", "Cf", "Mn")
]


@given(
    st.sampled_from(["postgres", "mysql", "snowflake", "trino", "spark", "databricks", "other"]),
    PLAIN,
    TABLES,
    st.data(),
)
def test_spelling_does_not_matter(scheme: str, host: str, table: str, data: st.DataObject) -> None:
    """Case, quotes, invisible characters, compatibility forms and white space at the ends change
    nothing in a store of tables.
    """
    form = normal_form(f"{scheme}://{host}", table)
    at = data.draw(st.integers(0, len(table)))
    unseen = data.draw(st.sampled_from(UNSEEN))
    quoted = ".".join(f'"{part}"' for part in table.split("."))
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in table)
    for name in (table.upper(), f" {table}\t", quoted, table[:at] + unseen + table[at:], wide):
        assert normal_form(f"{scheme.upper()}://{host.upper()}./", name) == form


@given(st.sampled_from(["s3", "gs", "hdfs", "file"]), PLAIN, TABLES, st.data())
def test_files_keep_their_case(scheme: str, host: str, name: str, data: st.DataObject) -> None:
    """In a store of files a capital is another name; slashes at the ends are not."""
    form = normal_form(f"{scheme}://{host}", name)
    assert normal_form(f"{scheme}://{host}/", f"/{name}/") == form
    if name.upper() != name:
        assert normal_form(f"{scheme}://{host}", name.upper()) != form


@given(st.sampled_from([*SCHEMES, "other"]), PLAIN, st.booleans(), TABLES)
def test_a_plain_name_means_the_same_in_one_text(
    scheme: str, host: str, bare: bool, table: str
) -> None:
    """Where the namespace ends matters for names with quotes, spaces or slashes only: so parents
    with plain names are never misread.
    """
    namespace = host if bare else f"{scheme}://{host}"
    assert joined(normal_form(namespace, table)) == meant_by(f"{namespace}/{table}")


@pytest.mark.parametrize("deep", ["%" + "25" * 900 + "41", "\uff05" + "\uff12\uff15" * 30 + "41"])
def test_a_name_that_is_encoded_over_and_over_is_not_read(deep: str) -> None:
    """However it is done, after some steps it is refused, so that nobody waits for one name; what
    people write takes a few.
    """
    for spelled in [(deep, ""), ("postgres://warehouse", deep)]:
        with pytest.raises(Invalid, match="is encoded so many times over"):
            check_spelling(*spelled)
    check_spelling("postgres://warehouse", "%" + "25" * (MOST_STEPS - 2) + "41")
    for one, same in SAME:
        check_spelling(*one)
        check_spelling(*same)


def test_data_that_differ_have_other_digests() -> None:
    """The digest does not confuse where the namespace ends."""
    assert Data("a", "bc").digest != Data("ab", "c").digest


def test_another_spelling_is_refused_in_a_population() -> None:
    """A second id for the same data would have a second budget, however it is spelled."""
    book = hospital()
    book.do("register_dataset", "admin", id="v", namespace=WAREHOUSE[0], name=WAREHOUSE[1])
    for namespace, name in [same for one, same in SAME if one == WAREHOUSE]:
        with pytest.raises(Conflict, match="is registered as 'v'") as refused:
            book.do("register_dataset", "admin", id="w", namespace=namespace, name=name)
        assert refused.value.code == "dataset-known"
    assert book.replayed().findings == []

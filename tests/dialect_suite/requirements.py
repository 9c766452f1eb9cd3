"""What SQLite over apsw can do, for SQLAlchemy's compliance suite.

The suite's own answers are cautious, and SQLAlchemy's for its SQLite drivers stand in a file that it does not ship. A
requirement that is not named here has the suite's answer. A wrong yes is a failing test.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

SUPPORTED = (
    "autocommit",
    "check_constraint_reflection",
    "computed_columns",
    "computed_columns_reflect_persisted",
    "computed_columns_stored",
    "computed_columns_virtual",
    "create_table_as",
    "create_temp_table_as",
    "ctes",
    "ctes_with_values",
    "date_historic",
    "datetime_historic",
    "datetime_literals",
    "dbapi_lastrowid",
    "expression_server_defaults",
    "fetch_expression",
    "fetch_offset_with_options",
    "fk_constraint_option_reflection_ondelete_noaction",
    "fk_constraint_option_reflection_ondelete_restrict",
    "fk_constraint_option_reflection_onupdate_restrict",
    "float_or_double_precision_behaves_generically",
    "foreign_key_constraint_name_reflection",
    "foreign_key_constraint_option_reflection_ondelete",
    "foreign_key_constraint_option_reflection_onupdate",
    "index_ddl_if_exists",
    "indexes_check_column_order",
    "indexes_with_expressions",
    "infinity_floats",
    "inline_check_constraint_reflection",
    "isolation_level",
    "json_array_indexes",
    "json_type",
    "legacy_unconditional_json_extract",
    "nvarchar_types",
    "order_by_collation",
    "percent_schema_names",
    "precision_numerics_retains_significant_digits",
    "reflect_table_options",
    "reflects_pk_names",
    "regexp_match",
    "repeated_column_foreign_keys",
    "repeated_remote_col_foreign_keys",
    "server_defaults",
    "skip_autocommit_rollback",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_or",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "table_ddl_if_exists",
    "tuple_in",
    "tuple_in_w_empty",
    "unicode_ddl",
    "update_from",
    "view_column_reflection",
    "view_reflection",
    "views",
    "window_functions",
    "window_range",
    "window_range_numeric",
)

NOT_SUPPORTED = {
    "foreign_keys": "not enforced unless PRAGMA foreign_keys is set",
    "implicitly_named_constraints": "SQLite gives constraints no names",
    "independent_connections": "one writer at a time",
    "json_index_supplementary_unicode_element": "SQLite's JSON path does not find the escaped key",
}

# The test runs and has to fail: the day it passes, the row goes.
FAILING = {
    "cast_precision_numerics_many_significant_digits": "numbers are 8-byte floats",
    "precision_numerics_many_significant_digits": "numbers are 8-byte floats",
    "parens_in_union_contained_select_w_limit_offset": "no parentheses inside a compound SELECT",
    "parens_in_union_contained_select_wo_limit_offset": "no parentheses inside a compound SELECT",
}

# Temporary tables belong to a connection. The pool of a file has several, that of a database in memory one a thread,
# which in turn leaves no second, independent one.
NOT_IN_A_FILE = (
    "has_temp_table",
    "temp_table_names",
    "temp_table_reflect_indexes",
    "temp_table_reflection",
    "temporary_tables",
    "temporary_views",
)
NOT_IN_MEMORY = ("independent_readonly_connections",)


def _is_file(config: Any) -> bool:
    return bool(config.db.dialect._is_url_file_db(config.db.url))


def _is_memory(config: Any) -> bool:
    return not _is_file(config)


class ApswRequirements(SuiteRequirements):
    """The suite asks for each requirement as a property; those that the tables above name are added below."""

    def get_order_by_collation(self, _config: Any) -> str:
        """A collation that every database has."""
        return "NOCASE"

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        """All levels of the dialect, the kinds of BEGIN included."""
        return {"default": "SERIALIZABLE", "supported": config.db.dialect.get_isolation_level_values(None)}


def _answer(names: Iterable[str], rule: Callable[..., Any], *arguments: Any) -> None:
    for name in names:
        setattr(ApswRequirements, name, property(lambda _self: rule(*arguments)))


_answer(SUPPORTED, exclusions.open)
for _name, _reason in NOT_SUPPORTED.items():
    _answer([_name], exclusions.closed, _reason)
for _name, _reason in FAILING.items():
    _answer([_name], exclusions.fails, _reason)
_answer(NOT_IN_A_FILE, exclusions.skip_if, _is_file, "temporary tables belong to a connection")
_answer(NOT_IN_MEMORY, exclusions.skip_if, _is_memory, "one connection a thread")

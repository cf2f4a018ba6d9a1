"""The policy file: what can be written, and what is said about what can't."""

import re
from pathlib import Path

import pytest
from tests.unit.builders import pod

from taint_eviction.core.label_selectors import Requirement
from taint_eviction.core.policy import EvictionMode, EvictionPolicy, Limit, PolicyRule
from taint_eviction.files.marked_yaml import Malformed
from taint_eviction.files.policy_file import LIMITS, MATCH, RULE, TOP, read_policy, read_policy_file

PAGE = (Path(__file__).parents[2] / "manifests" / "POLICY.md").read_text(encoding="utf-8")
HEAD = "apiVersion: taint-eviction/v1\nkind: EvictionPolicy\nrules:\n"
DATABASES = "  - {name: databases, match: {namespaces: [shop]}}"
BASE = EvictionPolicy()


def rules(*lines: str) -> tuple[PolicyRule, ...]:
    """Read these rules, the first in line 4."""
    return read_policy(HEAD + "\n".join(lines), "p.yaml", BASE).rules


def problems(text: str) -> list[str]:
    """Read a policy that can't be read, and list what is said."""
    with pytest.raises(Malformed) as raised:
        read_policy(text, "p.yaml", BASE)
    return [str(problem) for problem in raised.value.problems]


# What can be written


def test_a_rule_has_all_that_is_written() -> None:
    """Each key arrives in its field."""
    (rule,) = rules(
        "  - name: databases",
        "    match:",
        "      taintKeys: [node.kubernetes.io/unreachable, example.com/*]",
        "      namespaces: [shop, team-*]",
        "      podSelector: {matchLabels: {app: db},",
        "        matchExpressions: [{key: tier, operator: In, values: [gold]}, {key: old, operator: DoesNotExist}]}",
        "      nodeSelector: pool notin (gpu)",
        "    mode: evict-then-delete",
        "    evictTimeout: 10m",
        "    limits: {evictionsPerSecond: 0.5, burst: 1, concurrency: 2}",
        "    pause: true",
        "    maxTolerationSeconds: 60",
    )
    assert rule == PolicyRule(
        name="databases",
        taint_keys=("node.kubernetes.io/unreachable", "example.com/*"),
        namespaces=("shop", "team-*"),
        pod_selector=(
            Requirement("app", "In", frozenset({"db"})),
            Requirement("tier", "In", frozenset({"gold"})),
            Requirement("old", "DoesNotExist"),
        ),
        node_selector=(Requirement("pool", "NotIn", frozenset({"gpu"})),),
        mode=EvictionMode.EVICT_THEN_DELETE,
        evict_timeout_seconds=600.0,
        limit=Limit(0.5, 1, 2),
        pause=True,
        max_toleration_seconds=60,
    )


def test_a_rule_needs_no_more_than_a_name() -> None:
    """It then matches everything, and leaves everything as it is for all pods."""
    assert rules("  - name: a") == (PolicyRule("a"),)
    assert rules("  - {name: a, match: {}, limits: {}}") == (PolicyRule("a"),)


@pytest.mark.parametrize(("written", "seconds"), [("0", 0), ("300", 300), (str(2**63), 2**63)])
def test_a_ceiling_may_be_any_whole_number_from_0_on(written: str, seconds: int) -> None:
    """0 means at once, as tolerationSeconds do; one that is longer than every toleration shortens none."""
    (rule,) = rules(f"  - {{name: a, match: {{taintKeys: ['*']}}, maxTolerationSeconds: {written}}}")
    assert rule.max_toleration_seconds == seconds


def test_a_selector_may_be_text() -> None:
    """The same terms as in Kubernetes' own shape."""
    for field in ("podSelector", "nodeSelector"):
        text = rules(f'  - {{name: a, match: {{{field}: "app=db,tier in (gold)"}}}}')
        shape = rules(
            "  - name: a",
            f"    match: {{{field}: {{matchLabels: {{app: db}},",
            "      matchExpressions: [{key: tier, operator: In, values: [gold]}]}}",
        )
        assert text == shape


def test_the_file_gives_the_rules_and_nothing_else() -> None:
    """What holds for all pods is set by flags, and stays."""
    base = EvictionPolicy(EvictionMode.EVICT, 60.0, Limit(2.0), rules=(PolicyRule("before"),))
    policy = read_policy(HEAD + DATABASES, "p.yaml", base)
    assert policy == EvictionPolicy(
        EvictionMode.EVICT, 60.0, Limit(2.0), rules=(PolicyRule("databases", namespaces=("shop",)),)
    )
    assert read_policy(HEAD, "p.yaml", base).rules == ()


def test_the_example_on_the_page_holds() -> None:
    """What people copy first can be read, and does what the page says."""
    example, pools = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [rule.name for rule in read_policy(HEAD.replace("rules:\n", pools), "POLICY.md", BASE).rules] == [
        "gpu",
        "storage",
    ]
    policy = read_policy(example, "POLICY.md", BASE)
    database = policy.handling("example.com/old", pod(namespace="team-a", labels={"app": "db", "tier": "silver"}), 0.0)
    assert database.rule is not None
    assert (database.rule.name, database.mode) == ("databases", EvictionMode.EVICT_THEN_DELETE)
    assert (database.evict_timeout_seconds, database.rule.limit) == (600.0, Limit(0.5, 1, 2))
    batch = policy.handling("example.com/old", pod(namespace="team-a", labels={"workload": "batch"}), 0.0)
    assert batch.rule is not None
    assert (batch.rule.name, batch.rule.pause) == ("batch", True)
    assert policy.handling("other", pod(namespace="team-a"), 0.0).mode is EvictionMode.EVICT


@pytest.mark.parametrize("word", [*TOP, *RULE, *MATCH, *LIMITS, *(mode.value for mode in EvictionMode)])
def test_every_word_of_the_format_is_on_the_page(word: str) -> None:
    """Keys and modes."""
    assert re.search(rf"(`{word}`|\b{word}:)", PAGE)


# Problems


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    """One mistake does not hide another, and those of a rule do not spill over to the next."""
    text = """\
apiVersion: taint-eviction/v1
kind: EvictionPolicy
metadata: {name: mine}
rules:
  - match:
      taintKeys: [exam*ple.com, 7]
      namespace: [shop]
    mode: off
  - name: second
    match: {taintKeys: [a]}
    evictTimeout: soon
    limits: {burst: 0}
"""
    assert problems(text) == [
        "p.yaml:3: unknown key 'metadata' in a policy; known: apiVersion, kind, rules",
        "p.yaml:5: a rule lacks 'name'",
        "p.yaml:6: 'exam*ple.com' is not the key of a taint, or the beginning of one followed by *",
        "p.yaml:6: an item of taintKeys must be text, not the number 7 (write it in quotes: '7')",
        "p.yaml:7: unknown key 'namespace' in match; did you mean 'namespaces'?",
        "p.yaml:8: mode must be text, not false (write it in quotes)",
        "p.yaml:11: evictTimeout must be seconds (90) or a duration (1m30s, 500ms), not 'soon'",
        "p.yaml:12: burst has no effect without evictionsPerSecond",
        "p.yaml:12: burst must be a whole number of at least 1, not the number 0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("taint-eviction/v1", "taint-eviction/v2", "1: apiVersion must be taint-eviction/v1, not 'taint-eviction/v2'"),
        ("taint-eviction/v1", "", "1: apiVersion must be taint-eviction/v1, not nothing"),
        ("apiVersion: taint-eviction/v1\n", "", "1: a policy lacks 'apiVersion'; write apiVersion: taint-eviction/v1"),
        ("EvictionPolicy", "Policy", "2: kind must be EvictionPolicy, not 'Policy'"),
        ("kind: EvictionPolicy\n", "", "1: a policy lacks 'kind'; write kind: EvictionPolicy"),
        ("rules:", "rule:", "3: unknown key 'rule' in a policy; did you mean 'rules'?"),
        ("rules:", "rule:", "1: a policy lacks 'rules'"),
        (f"rules:\n{DATABASES}", "rules: {}", "3: rules must be a list, not a mapping"),
        (
            DATABASES,
            "  - databases",
            "4: a rule must be a mapping of evictTimeout, limits, match, maxTolerationSeconds, ",
        ),
    ],
)
def test_what_frames_the_rules_is_checked(old: str, new: str, said: str) -> None:
    """Version, kind, and that there are rules."""
    text = HEAD + DATABASES
    assert old in text
    assert any(problem.startswith(f"p.yaml:{said}") for problem in problems(text.replace(old, new)))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("name: 7", "name must be text, not the number 7 (write it in quotes: '7')"),
        ("name: ' '", "name must be a line of text, not ' '"),
        ('name: "a\\nb"', "name must be a line of text, not 'a\\nb'"),
        ('name: "\\uD800"', "name must be a line of text, not '\\ud800'"),
        ("mode: evicted", "mode must be one of delete, evict, evict-then-delete, not 'evicted'"),
        ("order: yes please", "order must be one of none, tiers, not 'yes please'"),
        (
            "tier: plugins",
            "tier must be one of critical-daemonsets, critical-workloads, daemonsets, workloads, not 'plugins'",
        ),
        ("evictTimeout: 0", "evictTimeout must be at least 1 s, not the number 0"),
        ("evictTimeout: -5m", "evictTimeout must be at least 1 s, not '-5m'"),
        ("evictTimeout: .inf", "evictTimeout must be seconds (90) or a duration (1m30s, 500ms), not the number inf"),
        ("evictTimeout: true", "evictTimeout must be seconds (90) or a duration (1m30s, 500ms), not true"),
        ("limits: 5", "limits must be a mapping of burst, concurrency, evictionsPerSecond, not the number 5"),
        ("limits: {rate: 5}", "unknown key 'rate' in limits; "),
        ("limits: {evictionsPerSecond: 0}", "evictionsPerSecond must be a number of more than 0, not the number 0"),
        ("limits: {evictionsPerSecond: -1}", "evictionsPerSecond must be a number of more than 0, not the number -1"),
        ("limits: {evictionsPerSecond: .nan}", "evictionsPerSecond must be a number of more than 0, not the number n"),
        ("limits: {evictionsPerSecond: .inf}", "evictionsPerSecond must be a number of more than 0, not the number i"),
        ("limits: {evictionsPerSecond: '1'}", "evictionsPerSecond must be a number of more than 0, not '1'"),
        ("limits: {evictionsPerSecond: true}", "evictionsPerSecond must be a number of more than 0, not true"),
        ("limits: {evictionsPerSecond: 1, burst: 1.5}", "burst must be a whole number of at least 1, not the number 1"),
        ("limits: {concurrency: 0}", "concurrency must be a whole number of at least 1, not the number 0"),
        (
            "maxTolerationSeconds: 60",
            "maxTolerationSeconds shortens tolerations of the taints that the rule names: give its match taintKeys",
        ),
        (
            "maxTolerationSeconds: 60, match: {namespaces: [shop]}",
            "maxTolerationSeconds shortens tolerations of the taints that the rule names: give its match taintKeys",
        ),
        ("match: {taintKeys: [a]}, maxTolerationSeconds: -1", "maxTolerationSeconds must be a whole number of at leas"),
        ("match: {taintKeys: [a]}, maxTolerationSeconds: 1.5", "maxTolerationSeconds must be a whole number of at lea"),
        ("match: {taintKeys: [a]}, maxTolerationSeconds: 5m", "maxTolerationSeconds must be a whole number of at leas"),
        ("match: {taintKeys: [a]}, maxTolerationSeconds: '60'", "maxTolerationSeconds must be a whole number of at le"),
        ("match: {taintKeys: [a]}, maxTolerationSeconds: true", "maxTolerationSeconds must be a whole number of at le"),
        (
            "match: {taintKeys: [a]}, maxTolerationSeconds:",
            "maxTolerationSeconds must be a whole number of at least 0,",
        ),
        ("pause: 'yes'", "pause must be true or false, not 'yes'"),
        ("match: [a]", "match must be a mapping of namespaces, nodeSelector, podSelector, taintKeys, not a list"),
        ("match: ", "match must be a mapping of namespaces, nodeSelector, podSelector, taintKeys, not nothing"),
        ("match: {taintKeys: a}", "taintKeys must be a list, not 'a'"),
        ("match: {taintKeys: [a b]}", "'a b' is not the key of a taint, or the beginning of one followed by *"),
        ("match: {taintKeys: ['*/a']}", "'*/a' is not the key of a taint, or the beginning of one followed by *"),
        ("match: {taintKeys: ['a**']}", "'a**' is not the key of a taint, or the beginning of one followed by *"),
        ("match: {namespaces: [Shop]}", "'Shop' is not a namespace's name, or the beginning of one followed by *"),
        ("match: {namespaces: ['*-shop']}", "'*-shop' is not a namespace's name, or the beginning of one followed b"),
        ("match: {namespaces: []}", "namespaces is empty; leave it out to match all"),
        ("match: {namespaces: }", "namespaces is empty; leave it out to match all"),
    ],
)
def test_what_cannot_be_meant_in_a_rule_is_named(rule: str, said: str) -> None:
    """What is wrong, and what was expected instead; once."""
    name = "" if rule.startswith("name") else "name: a, "
    found = problems(f"{HEAD}  - {{{name}{rule}}}")
    assert len(found) == 1
    assert found[0].startswith(f"p.yaml:4: {said}"), found


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("", "podSelector must be a mapping of matchExpressions, matchLabels, not nothing"),
        ("'app in db'", "'app in db' is not a label selector (key=value, "),
        ("'size>big'", "'size>big' is not a label selector (key=value, "),
        ("{labels: {}}", "unknown key 'labels' in podSelector; did you mean 'matchLabels'?"),
        ("{app: web}", "unknown key 'app' in podSelector; known: matchExpressions, matchLabels"),
        ("{matchLabels: [app]}", "matchLabels must be a mapping of labels, not a list"),
        ("{matchLabels: {app: 1}}", "the label 'app' must be text, not the number 1 (write it in quotes: '1')"),
        ("{matchLabels: {app: yes}}", "the label 'app' must be text, not true (write it in quotes)"),
        ("{matchLabels: {a b: c}}", "'a b' is no label's key"),
        ("{matchLabels: {a: b c}}", "'b c' is no label's value"),
        ("{matchExpressions: {key: a}}", "matchExpressions must be a list, not a mapping"),
        ("{matchExpressions: [a]}", "an item of matchExpressions must be a mapping of key, operator, values, not 'a'"),
        ("{matchExpressions: [{key: a}]}", "matchExpressions lacks 'operator'"),
        ("{matchExpressions: [{operator: Exists}]}", "matchExpressions lacks 'key'"),
        ("{matchExpressions: [{key: 1, operator: Exists}]}", "key must be text, not the number 1"),
        ("{matchExpressions: [{key: a, operator: Is}]}", "operator must be one of DoesNotExist, Exists, In, NotIn, n"),
        ("{matchExpressions: [{key: a, operator: In}]}", "the operator In needs values"),
        ("{matchExpressions: [{key: a, operator: NotIn, values: []}]}", "the operator NotIn needs values"),
        ("{matchExpressions: [{key: a, operator: In, values: b}]}", "values must be a list, not 'b'"),
        ("{matchExpressions: [{key: a, operator: In, values: [1]}]}", "an item of values must be text, not the numb"),
        ("{matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "the operator Exists takes no values"),
        ("{matchExpressions: [{key: a, operator: Exists, value: b}]}", "unknown key 'value' in an item of matchExpr"),
        ("'a=1,b,a=2'", "podSelector can match nothing: a=1 and a=2"),
        (
            "{matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}",
            "podSelector can match nothing",
        ),
    ],
)
def test_selectors_that_choose_nothing_that_could_be_meant(selector: str, said: str) -> None:
    """A slip in a selector must not make it choose more or fewer pods; each is told once. Nodes have the same forms."""
    for field in ("podSelector", "nodeSelector"):
        found = problems(f"{HEAD}  - {{name: a, match: {{{field}: {selector}}}}}")
        assert len(found) == 1
        assert found[0].startswith(f"p.yaml:4: {said.replace('podSelector', field)}"), found


def test_two_rules_of_one_name_are_refused() -> None:
    """Logs and metrics tell rules by their names."""
    found = problems(f"{HEAD}{DATABASES}\n  - {{name: databases, match: {{namespaces: [b]}}}}")
    assert found == ["p.yaml:5: there is a rule 'databases' already, in line 4"]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("", "match: {namespaces: [shop]}"),
        ("", ""),
        ("match: {taintKeys: ['*'], namespaces: [a, '*']}", "mode: evict"),
        ("match: {namespaces: [team-*]}", "match: {namespaces: [team-a, team-b-*], taintKeys: [a]}"),
        ("match: {podSelector: a=b}", "match: {podSelector: {matchLabels: {c: d, a: b}}}"),
        ("match: {nodeSelector: a}", "match: {nodeSelector: 'a,b!=c'}"),
        ("match: {namespaces: [shop]}", "match: {namespaces: [shop], nodeSelector: a=b}"),
    ],
)
def test_a_rule_that_can_never_count_is_refused(earlier: str, later: str) -> None:
    """One before it matches all that it matches."""
    found = problems(f"{HEAD}  - {{name: a, {earlier}}}\n  - {{name: b, {later}}}")
    assert found == [
        "p.yaml:5: rule 'b' never applies: rule 'a' in line 4 matches all that it matches,"
        " and the first that matches applies"
    ]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("match: {namespaces: [shop]}", ""),
        ("match: {namespaces: [team-a]}", "match: {namespaces: [team-*]}"),
        ("match: {namespaces: [shop]}", "match: {taintKeys: [a]}"),
        ("match: {podSelector: 'a=b,c=d'}", "match: {podSelector: a=b}"),
        ("match: {nodeSelector: 'a=b'}", "match: {podSelector: a=b}"),
        ("match: {nodeSelector: 'a=b'}", ""),
        ("match: {nodeSelector: a!=b}", "match: {nodeSelector: a=c}"),
        ("match: {namespaces: [a, b]}", "match: {namespaces: [b, c]}"),
    ],
)
def test_a_rule_that_can_count_is_not_refused(earlier: str, later: str) -> None:
    """One before it matches some of what it matches, but not all."""
    assert len(rules(f"  - {{name: a, {earlier}}}", f"  - {{name: b, {later}}}")) == 2


def test_what_a_misread_rule_matches_is_not_guessed() -> None:
    """A slip in its match makes no rule look as if it matched everything."""
    found = problems(f"{HEAD}  - {{name: a, macth: {{namespaces: [shop]}}}}\n  - {{name: b, mode: evict}}")
    assert found == ["p.yaml:4: unknown key 'macth' in a rule; did you mean 'match'?"]


def test_there_is_an_end_to_rules() -> None:
    """Each pod is held against one after the other."""
    many = "".join(f"  - {{name: r{number}}}\n" for number in range(1001))
    assert problems(HEAD + many) == ["p.yaml:4: there may be at most 1000 rules, not 1001"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty"),
        ("# nothing\n", "1: the file is empty"),
        ("- a", "1: a policy must be a mapping of apiVersion, kind, rules, not a list"),
        ("rules: [", "1: expected the node content, but found '<stream end>'"),
        (f"{HEAD}\n---\n{HEAD}", "5: but found another document"),
        ("rules: []\nrules: []", "2: 'rules' is here twice (first in line 1)"),
        ("rules: &a [*a]", "1: aliases (*) make the file endless or far too large"),
        ("rules: !!python/object:os.system x", "1: could not determine a constructor for the tag"),
        ("rules: !!bool maybe", "1: 'maybe' is no tag:yaml.org,2002:bool"),
        ("rules: !!int ''", "1: '' is no tag:yaml.org,2002:int"),
        ("rules: !!timestamp x", "1: 'x' is no tag:yaml.org,2002:timestamp"),
        (f"rules: 0x{'f' * 9999}", "1: this number is too large"),
        (f"rules: {'9' * 9999}", "1: it is not valid YAML: Exceeds the limit"),
        (f"rules: {'9:' * 999}9.0", "1: it is not valid YAML: int too large to convert to float"),
        ('rules: "\\UFFFFFFFF"', "1: it is not valid YAML: "),
        ("[" * 9999, "1: it is not valid YAML: maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_policy_at_all_is_named_with_its_line(text: str, said: str) -> None:
    """Broken, doubled, endless or executable YAML is a problem like any other."""
    found = problems(text)
    assert found[0].startswith(f"p.yaml:{said}"), found


def test_aliases_that_multiply_are_refused() -> None:
    """A small file can't become a huge one."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "far too large" in problems("\n".join(lines))[0]


def test_an_alias_is_as_good_as_what_it_stands_for() -> None:
    """What is written once may be used twice."""
    two = rules("  - {name: a, match: {namespaces: [a]}, limits: &l {concurrency: 1}}", "  - {name: b, limits: *l}")
    assert [rule.limit for rule in two] == [Limit(at_once=1)] * 2


# Files


def test_a_file_is_read_with_and_without_a_mark_of_its_encoding(tmp_path: Path) -> None:
    """UTF-8 as editors of all kinds write it."""
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "p.yaml").write_text(HEAD + DATABASES, encoding=encoding)
        assert read_policy_file(tmp_path / "p.yaml", BASE).rules[0].name == "databases"


def test_a_file_that_cannot_be_read_is_malformed(tmp_path: Path) -> None:
    """Absent, a directory, or no text."""
    (tmp_path / "latin.yaml").write_bytes(b"# one\n# \xe4\n")
    said = {
        "absent.yaml": "1: it cannot be read: No such file or directory",
        "": "1: it cannot be read: Is a directory",
    }
    said["latin.yaml"] = "2: the file is not UTF-8 text"
    for name, problem in said.items():
        path = tmp_path / name if name else tmp_path
        with pytest.raises(Malformed) as raised:
            read_policy_file(path, BASE)
        assert str(raised.value) == f"{path}:{problem}"

//! Look-ups in reports and workloads' results: a missing field is told with all that there is.

use serde_json::Value;

use crate::workload::at;
pub(crate) use crate::workload::number;

/// A list's entries.
pub(crate) fn list<'a>(result: &'a Value, field: &str) -> &'a [Value] {
    let list = at(result, field).and_then(Value::as_array);
    list.unwrap_or_else(|| panic!("no list {field} in {result}"))
}

/// The only entry of a list.
pub(crate) fn only<'a>(result: &'a Value, field: &str) -> &'a Value {
    let entries = list(result, field);
    assert_eq!(entries.len(), 1, "one of {field}: {result:#}");
    &entries[0]
}

pub(crate) fn text<'a>(result: &'a Value, field: &str) -> &'a str {
    let text = at(result, field).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no text {field} in {result}"))
}

/// The ID of a thread or process.
pub(crate) fn id(result: &Value, field: &str) -> u32 {
    u32::try_from(number(result, field)).expect("IDs fit")
}

/// The sum of an integer of all these.
pub(crate) fn sum<'a>(entries: impl IntoIterator<Item = &'a Value>, field: &str) -> u64 {
    entries.into_iter().map(|entry| number(entry, field)).sum()
}

/// The sum of a stack's values: ns, samples or weights.
pub(crate) fn weight(stack: &Value) -> u64 {
    let values = list(stack, "values").iter();
    values
        .map(|value| value.as_u64().expect("an integer"))
        .sum()
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A number that is printed as `0x…`.
pub(crate) fn address(entry: &Value) -> u64 {
    let digits = text(entry, "address").strip_prefix("0x").expect("0x");
    u64::from_str_radix(digits, 16).expect("hexadecimal")
}

/// A list of integers.
pub(crate) fn ids(result: &Value, field: &str) -> Vec<u64> {
    let entries = list(result, field).iter();
    entries.map(|id| id.as_u64().expect("an ID")).collect()
}

/// The sum of the values at the ends of folded lines.
pub(crate) fn folded_sum<'a>(lines: impl IntoIterator<Item = &'a str>) -> u64 {
    let value = |line: &'a str| line.rsplit(' ').next()?.parse::<u64>().ok();
    let values = lines.into_iter().map(value);
    values.map(|value| value.expect("a number")).sum()
}

/// Ends of waits that the machine's sandbox hides, at which a wait may not be counted. Nothing else is lost.
pub(crate) fn unended(report: &Value) -> u64 {
    let losses = report["losses"].as_object().expect("an object");
    for (name, count) in losses.iter().filter(|(name, _)| *name != "sleep_unended") {
        assert_eq!(count, 0, "{name}");
    }
    number(report, "losses.sleep_unended")
}

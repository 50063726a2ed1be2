//! A workload under a tool, from before its work to after it.

use serde_json::Value;

use crate::tool::Tool;
use crate::workload::Workload;

/// Runs `tool -j OPTIONS -p PID` over the work of a workload that is ready; gives the report, and what the workload says
/// of itself.
pub(crate) fn traced(
    tool: &str,
    mut workload: Workload,
    tgid: u32,
    options: &[&str],
) -> (Value, Vec<Value>) {
    let pid = tgid.to_string();
    let tool = Tool::start(tool, &[&["-j", "-p", &pid], options].concat());
    tool.wait_attached();
    workload.go();
    let results = workload.results();
    tool.interrupt();
    let output = tool.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    workload.finish();
    let report = serde_json::from_str(&output.stdout).expect("a JSON object");
    (report, results)
}

//! A tool of three engines: offcputime's, runqlat's and profile's over one window. It writes what they found as JSON.

use std::env;
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::{self, Command, ExitCode};

use anyhow::{Context, Result};
use budget::cost::Cost;
use budget::meter::Meter;
use budget::{Budget, Programs, Sampler, Told, Window, Windowed};
use clap::Parser;
use host::clock::Edges;
use serde_json::{Value, json};
use session::closing::Closing;
use session::options::Common;
use session::probe::{Kernel, Need};
use session::progress::State;
use session::sampling::{Collector, Sampled};
use session::schedule::For;
use session::targets::{Settings, Targets};
use session::together::{AsOne, Together};
use session::{Asked, Options, Setup};
use tools::{offcputime, profile as profiling, runqlat};

use crate::kernel::until;
use crate::tool::{Output, Tool};

/// Time between two samples on a CPU, ns.
pub(crate) const PERIOD_NS: u64 = 1_000_003;

/// It has loaded its programs, and waits for a file that `--when` names.
pub(crate) const LOADED: &str = "trio: loaded";

/// It has looked for a while.
pub(crate) const TAKEN: &str = "trio: a window";

/// Words of the tool's command line, for this program to be the tool.
const LINE: &str = "USEKIT_TRIO";

#[derive(Parser)]
#[command(name = "trio")]
struct Args {
    #[command(flatten)]
    window: For,

    #[command(flatten)]
    targets: Targets,

    /// Open the window when this file exists
    #[arg(long)]
    when: Option<PathBuf>,

    #[command(flatten)]
    budget: Budget,

    #[command(flatten)]
    common: Common,

    #[arg(skip)]
    parts: Option<Parts>,
}

/// Options of each engine.
struct Parts {
    off: offcputime::Args,
    queue: runqlat::Args,
    cpu: profiling::Args,
}

impl Parts {
    fn of(args: &Args) -> Result<Self> {
        let pids = args.targets.pids.iter().map(|pid| format!(" -p {pid}"));
        let budget = args.budget.max_overhead;
        let budget = budget.map(|percent| format!(" --max-overhead {percent}"));
        let all: String = pids.chain(budget).collect();
        // A file with times of single samples is asked for, and not written: they are asked for themselves.
        let moments = env::temp_dir().join("trio.perf.txt");
        let cpu = format!("profile --threads -c {PERIOD_NS} -o {}", moments.display());
        Ok(Self {
            off: parsed(&format!("offcputime -m 0{all}"))?,
            queue: parsed(&format!("runqlat -L{all}"))?,
            cpu: parsed(&format!("{cpu}{all}"))?,
        })
    }
}

fn parsed<A: Parser>(line: &str) -> Result<A> {
    Ok(A::try_parse_from(line.split_whitespace())?)
}

impl Options for Args {
    const NAME: &'static str = "trio";
    const NEEDS: &'static [Need] = &[];

    fn asked(&self) -> Asked<'_> {
        Asked::new(&self.targets, self.window, &self.budget, &self.common)
    }

    fn from_command_line(line: &[OsString]) -> Result<Self> {
        let mut args = Self::parse_from(line);
        args.parts = Some(Parts::of(&args)?);
        Ok(args)
    }

    fn programs(&self, _kernel: &Kernel, _targets: &Settings) -> Vec<(&'static str, bool)> {
        Vec::new()
    }
}

impl Sampled for Args {
    type Collector<'a> = AsOne<Three<'a>>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Collector<'a>> {
        let Parts { off, queue, cpu } = self.parts.as_ref().context("no parts")?;
        let three = Three {
            off: off.collector(&setup.for_part(off))?,
            queue: queue.collector(&setup.for_part(queue))?,
            cpu: cpu.collector(&setup.for_part(cpu))?,
            watch: Watch::default(),
            meter: setup.meter,
        };
        if let Some(file) = &self.when {
            eprintln!("{LOADED}");
            until("the word to begin", || file.exists());
        }
        Ok(AsOne(three))
    }
}

struct Three<'a> {
    off: offcputime::Offcputime<'a>,
    queue: runqlat::Runqlat<'a>,
    cpu: profiling::Profiling<'a>,
    watch: Watch,
    meter: &'a Meter,
}

impl Three<'_> {
    fn cost(&self, sampler: &Sampler<'_>, end_ns: u64) -> Cost {
        let programs = self.parts().into_iter().flat_map(Windowed::programs);
        let objects = programs.map(|programs| programs.object);
        Cost::read(self.meter, objects, sampler.summary(end_ns))
    }
}

impl Together for Three<'_> {
    fn parts(&self) -> Vec<&dyn Collector> {
        vec![&self.off, &self.queue, &self.cpu, &self.watch]
    }

    fn parts_mut(&mut self) -> Vec<&mut dyn Collector> {
        vec![
            &mut self.off,
            &mut self.queue,
            &mut self.cpu,
            &mut self.watch,
        ]
    }

    fn describe(&self) -> String {
        "three ways".into()
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        let off = self.off.harvest(sampler, window)?;
        let queue = self.queue.harvest(window)?;
        let cpu = self.cpu.harvest(sampler, window)?;
        let moments = self.cpu.moments().iter();
        let report = json!({
            "start_ns": window.start_ns,
            "end_ns": window.end_ns,
            "windows": self.watch.0.iter().map(|one| json!([one.start_ns, one.end_ns])).collect::<Value>(),
            "stacks": off.rows.iter().map(stack).collect::<Value>(),
            "accounting": accounting(&off.accounting),
            "groups": queue.waits.iter().map(|waits| json!({
                "tid": waits.id.id,
                "count": waits.histogram.count(),
                "sum_ns": waits.histogram.sum(),
            })).collect::<Value>(),
            "open": queue.open.iter().map(|wait| json!({
                "tid": wait.tid,
                "wait_ns": wait.wait_ns,
            })).collect::<Value>(),
            "samples": cpu.rows.iter().map(|row| json!({
                "tid": row.task.tid,
                "samples": row.samples,
            })).collect::<Value>(),
            "moments": moments.map(|moment| json!({
                "tid": moment.tid,
                "time_ns": moment.time_ns,
            })).collect::<Value>(),
            "margins": {
                "queue": queue.estimates.map(|all| all.time.to_json()),
                "off": off.estimates.map(|all| all.runqueue.to_json()),
            },
            "losses": {
                "off": off.losses.to_json(),
                "queue": queue.losses.to_json(),
                "cpu": cpu.losses.to_json(),
            },
            "looked": sampler.share(window.end_ns),
            "cost": self.cost(sampler, window.end_ns).to_json(),
        });
        Ok(writeln!(stdout(), "{report}")?)
    }

    fn closing(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Closing> {
        Ok(Closing {
            cost: self.cost(sampler, window.end_ns),
            ..Closing::default()
        })
    }
}

/// A part that traces nothing: what windows there were.
#[derive(Default)]
struct Watch(Vec<Window>);

impl Windowed for Watch {
    fn programs(&self) -> Vec<Programs<'_>> {
        Vec::new()
    }

    fn prepare(&mut self, _first: bool) -> Result<()> {
        Ok(())
    }

    fn edges(&mut self) -> Result<Vec<Told<'_>>> {
        Ok(Vec::new())
    }

    fn shut(&mut self) -> Result<u64> {
        Ok(0)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        self.0.push(*window);
        eprintln!("{TAKEN}");
        Ok(())
    }
}

impl Collector for Watch {
    fn describe(&self) -> String {
        String::new()
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn look_around(&mut self, _can_afford_more: bool) -> Result<State> {
        Ok(State::default())
    }

    fn report(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<()> {
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        Ok(Closing::default())
    }
}

fn stack(row: &offcputime::Row) -> Value {
    json!({
        "tid": row.task.tid,
        "count": row.count,
        "values": [row.blocked_ns, row.runqueue_ns],
        "blocked_ns": row.blocked_ns,
        "runqueue_ns": row.runqueue_ns,
        "kernel": [],
    })
}

fn accounting(sums: &offcputime::Accounting) -> Value {
    json!({
        "threads": sums.threads,
        "lifetime_ns": sums.lifetime_ns,
        "oncpu_ns": sums.oncpu_ns,
        "runqueue_ns": sums.runqueue_ns,
        "blocked_ns": sums.blocked_ns,
        "unseen_ns": sums.unseen_ns,
    })
}

/// Starts this program once more, as the tool.
pub(crate) fn start(options: &str) -> Tool {
    let mut command = Command::new(env::current_exe().expect("a program"));
    command.args(["--exact", "trio::is_the_tool_where_asked", "--nocapture"]);
    command.env(LINE, format!("trio {options}"));
    Tool::spawn("trio", command)
}

/// The report, behind what the test's harness has written.
pub(crate) fn report(output: &Output) -> Value {
    let begin = output.stdout.find('{').expect("a report");
    crate::found::json(&output.stdout[begin..])
}

#[test]
fn is_the_tool_where_asked() {
    let Some(line) = env::var_os(LINE) else {
        return;
    };
    let line = line.into_string().expect("text");
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let status = session::main::<Args>(&words);
    process::exit(i32::from(status != ExitCode::SUCCESS));
}

//! Open → configure → load → attach, with libbpf's words kept for the day something fails.

pub mod arrivals;
pub mod counters;
pub mod functions;
pub mod iterate;
pub mod maps;
pub mod tracefs;

use std::io;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};
use host::remedies;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapHandle, MapType, OpenObject, PrintLevel, set_print};

/// What libbpf has said since the start; shown only when loading fails or with `-v`.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Shortest log kept; a verifier's rejection is at its end, so the beginning goes first.
const LOG_BYTES: usize = 256 * 1024;

/// See `bpf/include/ids.bpf.h`.
const NOTE_NAMESPACE: &str = "note_namespace";

/// Environment variable that shows the log in full when loading fails.
const SHOW_LOG: &str = "USEKIT_BPF_LOG";

/// Remedy where the kernel takes the programs for wrong.
const REPORT: &str = "; please report it with the output of USEKIT_BPF_LOG=1";

/// Which of a skeleton's optional programs are to be loaded, by name.
pub type Selection<'a> = &'a [(&'a str, bool)];

/// Loads and attaches a skeleton; the programs called `gated` are left to be attached by `budget::Sampler`.
///
/// `configure` fills constants and map sizes; `selection` switches optional programs on and off. The object's storage
/// is leaked on purpose: a tool loads once and keeps its programs until it exits.
///
/// # Errors
///
/// What failed, libbpf's first complaint, and the remedy where there is one.
pub fn load<B>(
    builder: B,
    selection: Selection<'_>,
    gated: &[&str],
    configure: impl FnOnce(&mut B::Output) -> Result<()>,
) -> Result<<B::Output as OpenSkel<'static>>::Output>
where
    B: SkelBuilder<'static>,
    B::Output: OpenSkel<'static>,
{
    let mut skel = prepare(builder, selection, |open| {
        for mut program in open.open_object_mut().progs_mut() {
            if gated.iter().any(|name| program.name() == *name) {
                program.set_autoattach(false);
            }
        }
        configure(open)
    })?;
    attach(&mut skel)?;
    Ok(skel)
}

/// As [`load`], but nothing runs, and nothing costs time, before [`attach`].
///
/// # Errors
///
/// As for [`load`].
pub fn prepare<B>(
    builder: B,
    selection: Selection<'_>,
    configure: impl FnOnce(&mut B::Output) -> Result<()>,
) -> Result<<B::Output as OpenSkel<'static>>::Output>
where
    B: SkelBuilder<'static>,
    B::Output: OpenSkel<'static>,
{
    keep_log();
    let storage = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
    let mut open = builder
        .open(storage)
        .map_err(|err| explain(Step::Open, &err))?;
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if let Some((_, wanted)) = selection.iter().find(|(selected, _)| *selected == name) {
            program.set_autoload(*wanted);
        }
        if name == NOTE_NAMESPACE {
            program.set_autoattach(false);
        }
    }
    configure(&mut open)?;
    open.load().map_err(|err| explain(Step::Load, &err))
}

/// Attaches what [`prepare`] has loaded.
///
/// # Errors
///
/// As for [`load`].
pub fn attach(skel: &mut impl Skel<'static>) -> Result<()> {
    note_namespace(skel)?;
    skel.attach().map_err(|err| explain(Step::Attach, &err))
}

/// Tells the programs which PID namespace the tool lives in, before the first of them asks who is a target.
fn note_namespace(skel: &mut impl Skel<'static>) -> Result<()> {
    let mut programs = skel.object_mut().progs_mut();
    let Some(program) = programs.find(|program| program.name() == NOTE_NAMESPACE) else {
        return Ok(());
    };
    let link = program
        .attach()
        .map_err(|err| explain(Step::Attach, &err))?;
    iterate::run(Some(&link))?;
    Ok(())
}

/// Keeps what libbpf says from now on, which else goes to stderr.
pub fn keep_log() {
    set_print(Some((PrintLevel::Debug, remember)));
}

/// Everything that libbpf has said so far, for `-v`.
pub fn log() -> String {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

// libbpf's callback carries no context: hence the static.
fn remember(_level: PrintLevel, text: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(&text);
    // Half of it at a time: to move the rest at every line took 4% of the time to load lockstat's programs.
    if log.len() > 2 * LOG_BYTES {
        let mut cut = log.len() - LOG_BYTES;
        while !log.is_char_boundary(cut) {
            cut += 1;
        }
        log.drain(..cut);
    }
}

/// A step of loading.
#[derive(Clone, Copy)]
enum Step {
    Open,
    Load,
    Attach,
}

/// libbpf's errors carry an errno only; the program or map that it is about is in what it printed.
fn explain(step: Step, err: &libbpf_rs::Error) -> anyhow::Error {
    let said = log();
    if std::env::var_os(SHOW_LOG).is_some() {
        profile::say!("{said}");
    }
    let act = act(step, &said);
    let refused = refused_trial(&said).map(io::Error::from_raw_os_error);
    let cause = refused.unwrap_or_else(|| io_error(err));
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM | libc::EMFILE) => anyhow!(cause).context(act),
        _ if said.contains("BEGIN PROG LOAD LOG") => {
            anyhow!("{act}: refused by this kernel's verifier{REPORT}")
        }
        Some(libc::EINVAL | libc::ENOTSUP | libc::EFAULT) | None => {
            anyhow!("{act}: {}{REPORT}", remedies::cause(&cause))
        }
        _ => anyhow!(cause).context(act),
    }
}

/// The act that failed, by the first complaint.
fn act(step: Step, said: &str) -> String {
    let mut lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("libbpf: "));
    let complaint = lines.find(|line| line.contains("failed") && !line.contains("BPF token"));
    let named = |kind: &str| {
        let name = complaint?.strip_prefix(kind)?.strip_prefix(" '")?;
        Some(name.split('\'').next()?.to_owned())
    };
    match (step, named("map"), named("prog")) {
        (_, Some(map), _) => format!("create BPF map {map}"),
        (Step::Attach, _, Some(program)) => format!("attach BPF program {program}"),
        (_, _, Some(program)) => format!("load BPF program {program}"),
        (Step::Open, ..) => "open BPF object".to_owned(),
        (Step::Load, ..) => "load BPF programs".to_owned(),
        (Step::Attach, ..) => "attach BPF programs".to_owned(),
    }
}

/// The error that kept libbpf from finding out what the kernel can do: programs are then made for a lesser one, and rejected.
fn refused_trial(said: &str) -> Option<i32> {
    let mut lines = said.lines();
    let trial = lines.find(|line| line.starts_with("libbpf: Detection of "))?;
    let known = [
        ("-EPERM", libc::EPERM),
        ("-ENOMEM", libc::ENOMEM),
        ("-EMFILE", libc::EMFILE),
    ];
    let named = known.iter().find(|(name, _)| trial.ends_with(name));
    named.map(|(_, number)| *number)
}

/// The kernel's error below what libbpf-rs says.
fn io_error(err: &libbpf_rs::Error) -> io::Error {
    let text = format!("{err:#}");
    remedies::number(&text).map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
}

/// Reads a `.bss` or `.rodata` accessor that the skeleton declares optional.
///
/// # Errors
///
/// The kernel makes no maps that can be mapped into memory; or the C side lost its section.
pub fn section<T>(section: Option<T>, name: &str) -> Result<T> {
    section.map_or_else(|| Err(no_section(name)), Ok)
}

/// libbpf leaves sections out where such a map cannot be made, and does not say why.
fn no_section(name: &str) -> anyhow::Error {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..libbpf_sys::bpf_map_create_opts::default()
    };
    match MapHandle::create(MapType::Array, Some("trial"), 4, 4, 1, &options) {
        Err(err) => anyhow!(io_error(&err)).context(format!("create BPF map {name}")),
        Ok(_) => {
            anyhow!("create BPF map {name}: this kernel makes none that programs can map{REPORT}")
        }
    }
}

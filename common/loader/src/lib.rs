//! Open → configure → load → attach, with libbpf's words kept for the day something fails.

pub mod arrivals;
pub mod counters;
pub mod iterate;
pub mod maps;
pub mod tracefs;

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{OpenObject, PrintLevel, set_print};

/// What libbpf has said since the start; shown only when loading fails or with `-v`.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Longest log kept; a verifier's rejection is at its end, so the beginning goes first.
const LOG_BYTES: usize = 256 * 1024;

/// See `bpf/include/ids.bpf.h`.
const NOTE_NAMESPACE: &str = "note_namespace";

/// Environment variable that shows the log in full when loading fails.
const SHOW_LOG: &str = "USEKIT_BPF_LOG";

/// Which of a skeleton's optional programs are to be loaded, by name.
pub type Selection<'a> = &'a [(&'a str, bool)];

/// Loads and attaches a skeleton.
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
    configure: impl FnOnce(&mut B::Output) -> Result<()>,
) -> Result<<B::Output as OpenSkel<'static>>::Output>
where
    B: SkelBuilder<'static>,
    B::Output: OpenSkel<'static>,
{
    let mut skel = prepare(builder, selection, configure)?;
    attach(&mut skel)?;
    Ok(skel)
}

/// As [`load`], but the programs called `gated` are left to be attached by `budget::Sampler`.
///
/// # Errors
///
/// As for [`load`].
pub fn load_gated<B>(
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
    set_print(Some((PrintLevel::Debug, remember)));
    let storage = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
    let mut open = builder
        .open(storage)
        .map_err(|err| explain("open BPF object", &err))?;
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
    open.load()
        .map_err(|err| explain("load BPF programs", &err))
}

/// Attaches what [`prepare`] has loaded.
///
/// # Errors
///
/// As for [`load`].
pub fn attach(skel: &mut impl Skel<'static>) -> Result<()> {
    note_namespace(skel)?;
    skel.attach()
        .map_err(|err| explain("attach BPF programs", &err))
}

/// Tells the programs which PID namespace the tool lives in, before the first of them asks who is a target.
fn note_namespace(skel: &mut impl Skel<'static>) -> Result<()> {
    let mut programs = skel.object_mut().progs_mut();
    let Some(program) = programs.find(|program| program.name() == NOTE_NAMESPACE) else {
        return Ok(());
    };
    let link = program
        .attach()
        .map_err(|err| explain("attach BPF programs", &err))?;
    iterate::run(Some(&link))?;
    Ok(())
}

/// Everything that libbpf has said so far, for `-v`.
pub fn log() -> String {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

// libbpf's callback carries no context: hence the static.
fn remember(_level: PrintLevel, text: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(&text);
    if log.len() > LOG_BYTES {
        let mut cut = log.len() - LOG_BYTES;
        while !log.is_char_boundary(cut) {
            cut += 1;
        }
        log.drain(..cut);
    }
}

/// libbpf's errors carry an errno only; the reason is in what it printed.
fn explain(act: &str, err: &libbpf_rs::Error) -> anyhow::Error {
    let said = log();
    if std::env::var_os(SHOW_LOG).is_some() {
        profile::say!("{said}");
    }
    let complaint = said
        .lines()
        .filter_map(|line| line.strip_prefix("libbpf: "))
        .find(|line| {
            (line.contains("failed") || line.contains("not found")) && !line.contains("BPF token")
        })
        .map(|line| format!(" ({})", line.trim_end()))
        .unwrap_or_default();
    let cause = anyhow!("{err}{complaint}");
    let rejected = said.contains("BEGIN PROG LOAD LOG");
    match err.kind() {
        // EACCES is the verifier's word, EPERM the system's.
        libbpf_rs::ErrorKind::PermissionDenied if !rejected => cause.context(format!(
            "{act}: not permitted here; run as root, outside containers that filter bpf(2), with kernel lockdown off"
        )),
        _ if rejected => cause.context(format!(
            "{act}: this kernel's verifier refuses them; please report it with the output of USEKIT_BPF_LOG=1"
        )),
        _ => cause.context(act.to_owned()),
    }
}

/// Reads a `.bss` or `.rodata` accessor that the skeleton declares optional.
///
/// # Errors
///
/// Only when the C side lost its section.
pub fn section<T>(section: Option<T>, name: &str) -> Result<T> {
    section.with_context(|| format!("the BPF object has no {name}"))
}

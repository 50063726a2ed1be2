//! Which test kills a mutant: the cheap ones first.

use std::fs;
use std::path::Path;
use std::slice;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::mutation::Mutation;
use crate::objects::{Objects, includes, tools_of};
use crate::programs::{Program, Programs};
use crate::tree::Tree;

const REPLAYS: &str = "-p usekit-bpf --test replay*";
const LIVE: &str = "-p usekit-tools --test live";
/// Replays of headers that several tools share, and the source that includes them.
const SHARED: [(&str, &str); 1] = [("replay_unwind", "bpf/host/unwind.c")];
/// Rust tests that compile a header themselves.
const COMPILING: [(&str, &str, &str); 1] = [(
    "bpf/include/histogram.bpf.h",
    "-p usekit-hist --lib",
    "the_bpf_side",
)];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub(crate) enum Verdict {
    /// It does not compile, or the object is the same.
    NoMutant,
    /// Only live tests could tell.
    NotTried,
    Killed {
        stage: &'static str,
        by: String,
    },
    Survived,
}

pub(crate) struct Judge {
    tree: Tree,
    objects: Objects,
    programs: Programs,
    has_live: bool,
    /// Rust is judged by its own crate's tests.
    is_own_only: bool,
    replays: Vec<Program>,
}

impl Judge {
    pub(crate) fn new(
        tree: Tree,
        programs: Programs,
        has_live: bool,
        is_own_only: bool,
    ) -> Result<Self> {
        Ok(Self {
            tree,
            objects: Objects::new()?,
            programs,
            has_live,
            is_own_only,
            replays: Vec::new(),
        })
    }

    pub(crate) fn judge(&mut self, mutation: &Mutation) -> Result<Verdict> {
        let original = fs::read_to_string(self.tree.path(&mutation.file))?;
        let text = mutation.apply(&original);
        if mutation.is_c() {
            self.judge_c(mutation, &text)
        } else {
            self.judge_rust(mutation, &text)
        }
    }

    fn judge_c(&mut self, mutation: &Mutation, text: &str) -> Result<Verdict> {
        let tools = tools_of(&self.tree.path(""), &mutation.file)?;
        let compiling = COMPILING
            .iter()
            .find(|(file, ..)| Path::new(file) == mutation.file);
        if self.replays.is_empty() {
            self.programs.learn(&self.tree, REPLAYS, "")?;
            let replays = self.programs.build(&self.tree, REPLAYS)?;
            self.replays = replays.context("they compiled before")?;
        }
        let unit = compiling
            .map(|(_, arguments, filter)| {
                self.programs.learn(&self.tree, arguments, filter)?;
                let built = self.programs.build(&self.tree, arguments)?;
                Ok::<_, anyhow::Error>((built.context("it compiled before")?, arguments, filter))
            })
            .transpose()?;
        let replays = of_tools(&self.replays, &tools);
        if replays.is_empty() && unit.is_none() && !self.has_live {
            return Ok(Verdict::NotTried);
        }
        // Objects of tools that no test here runs need not be compiled.
        let is_tried = |tool: &String| {
            self.has_live
                || unit.is_some()
                || !of_tools(&self.replays, slice::from_ref(tool)).is_empty()
        };
        let tools: Vec<String> = tools.into_iter().filter(is_tried).collect();
        self.objects.learn(&self.tree, &tools)?;

        let changed = self.tree.change(&mutation.file, text)?;
        let Some(tools) = self.objects.changed(&self.tree, &tools)? else {
            return Ok(Verdict::NoMutant);
        };
        if tools.is_empty() {
            return Ok(Verdict::NoMutant);
        }
        let mut replays = of_tools(&self.replays, &tools);
        replays.extend(self.of_header(&mutation.file));
        if let Some((built, arguments, filter)) = unit
            && let Some(by) = self.programs.first_failure(&built, arguments, filter)?
        {
            return Ok(Verdict::Killed { stage: "unit", by });
        }
        if let Some(by) = self.programs.first_failure(&replays, REPLAYS, "")? {
            return Ok(Verdict::Killed {
                stage: "replay",
                by,
            });
        }
        if !self.has_live {
            return Ok(if replays.is_empty() && compiling.is_none() {
                Verdict::NotTried
            } else {
                Verdict::Survived
            });
        }
        drop(changed);
        self.live(mutation, text, &tools)
    }

    fn of_header<'a>(&'a self, file: &'a Path) -> impl Iterator<Item = Program> + 'a {
        let is_of = move |program: &&Program| {
            SHARED.iter().any(|(name, source)| {
                let source = Path::new(source);
                program.name == *name
                    && includes(&self.tree.path(""), source, file, &mut Vec::new())
            })
        };
        self.replays.iter().filter(is_of).cloned()
    }

    fn judge_rust(&mut self, mutation: &Mutation, text: &str) -> Result<Verdict> {
        let stages = stages(&mutation.file).into_iter();
        for (stage, arguments, filter) in stages.take(if self.is_own_only { 1 } else { usize::MAX })
        {
            // Here, and not before the first stage: what comes later takes minutes, and most mutants do not live to see it.
            self.programs.learn(&self.tree, &arguments, &filter)?;
            let mut changed = self.tree.change(&mutation.file, text)?;
            changed.is_built();
            let Some(programs) = self.programs.build(&self.tree, &arguments)? else {
                return Ok(Verdict::NoMutant);
            };
            if let Some(by) = self
                .programs
                .first_failure(&programs, &arguments, &filter)?
            {
                return Ok(Verdict::Killed { stage, by });
            }
        }
        if !self.has_live || self.is_own_only {
            return Ok(Verdict::Survived);
        }
        let tools = self.users(&mutation.file)?;
        self.live(mutation, text, &tools)
    }

    fn live(&mut self, mutation: &Mutation, text: &str, filters: &[String]) -> Result<Verdict> {
        self.programs.make_workloads(&self.tree)?;
        for filter in filters {
            self.programs.learn(&self.tree, LIVE, filter)?;
        }
        let mut changed = self.tree.change(&mutation.file, text)?;
        changed.is_built();
        let Some(programs) = self.programs.build(&self.tree, LIVE)? else {
            return Ok(Verdict::NoMutant);
        };
        for filter in filters {
            if let Some(by) = self.programs.first_failure(&programs, LIVE, filter)? {
                return Ok(Verdict::Killed { stage: "live", by });
            }
        }
        Ok(Verdict::Survived)
    }

    /// Parts of the names of live tests that concern a file of Rust.
    fn users(&self, file: &Path) -> Result<Vec<String>> {
        let name = file.to_string_lossy();
        let mut parts = name.split('/');
        match (parts.next(), parts.next()) {
            (Some("tools"), Some(tool)) => Ok(vec![tool.to_owned()]),
            (_, Some("profile")) => Ok(vec!["outputs".to_owned()]),
            _ => {
                let module = parts.nth(1).unwrap_or_default().trim_end_matches(".rs");
                let tools = tools_of(&self.tree.path(""), Path::new("bpf/include/vmlinux.h"))?;
                let mut using = Vec::new();
                for tool in tools {
                    let directory = self.tree.path(format!("tools/{tool}"));
                    if directory.is_dir() && mentions(&directory, module)? {
                        using.push(tool);
                    }
                }
                Ok(using)
            }
        }
    }
}

/// Whether any source below has this word, such as a module's name.
fn mentions(directory: &Path, word: &str) -> Result<bool> {
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        let is_mentioned = if path.is_dir() {
            mentions(&path, word)?
        } else {
            let text = fs::read_to_string(&path)?;
            text.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|it| it == word)
        };
        if is_mentioned {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tests without a kernel: how they are called, cargo's arguments, and a part of the tests' names.
fn stages(file: &Path) -> Vec<(&'static str, String, String)> {
    let name = file.to_string_lossy();
    if name.starts_with("common/profile/") {
        return vec![
            ("unit", "-p usekit-profile".into(), String::new()),
            ("dependents", "-p usekit-flame".into(), String::new()),
        ];
    }
    if let Some(room) = name.strip_prefix("common/") {
        let room = room.split('/').next().unwrap_or_default();
        return vec![
            ("unit", format!("-p usekit-{room} --lib"), String::new()),
            ("dependents", "-p usekit-tools --lib".into(), String::new()),
        ];
    }
    let tool = name.split('/').nth(1).unwrap_or_default();
    vec![("unit", "-p usekit-tools --lib".into(), format!("{tool}::"))]
}

/// `replay_TOOL` and `replay_TOOL_WHAT`.
fn of_tools(replays: &[Program], tools: &[String]) -> Vec<Program> {
    let is_of = |program: &Program, tool: &String| {
        let rest = program
            .name
            .strip_prefix("replay_")
            .and_then(|it| it.strip_prefix(tool.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let of_them = replays
        .iter()
        .filter(|it| tools.iter().any(|tool| is_of(it, tool)));
    of_them.cloned().collect()
}

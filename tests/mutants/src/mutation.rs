//! What is wrong in a mutant: small mistakes of one expression or statement, found in the syntax tree.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tree_sitter::{Node, Parser};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    DroppedUpdate,
    DoubledUpdate,
    SwappedArguments,
    OffByOne,
    ForgottenFilter,
    LostUnlock,
    NegatedCondition,
    WrongComparison,
    PlusForMinus,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// Below the root.
    pub(crate) file: PathBuf,
    pub(crate) kind: Kind,
    /// Bytes of the file.
    pub(crate) at: Range<usize>,
    pub(crate) instead: String,
}

impl Mutation {
    pub(crate) fn is_c(&self) -> bool {
        is_c(&self.file)
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        let (before, after) = (&text[..self.at.start], &text[self.at.end..]);
        format!("{before}{}{after}", self.instead)
    }

    /// From 1.
    pub(crate) fn line(&self, text: &str) -> usize {
        text[..self.at.start].matches('\n').count() + 1
    }
}

pub(crate) fn is_c(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending != "rs")
}

/// All mutations of a file.
pub(crate) fn of(file: &Path, text: &str) -> Result<Vec<Mutation>> {
    let mut parser = Parser::new();
    let language = if is_c(file) {
        tree_sitter_c::LANGUAGE
    } else {
        tree_sitter_rust::LANGUAGE
    };
    parser.set_language(&language.into())?;
    let tree = parser
        .parse(text, None)
        .context("a parser without limits")?;
    let mut found = Found {
        file,
        text,
        mutations: Vec::new(),
    };
    found.visit(tree.root_node(), false);
    if is_c(file) {
        found.unlocks();
    }
    let mut mutations = found.mutations;
    mutations.sort_by_key(|it| (it.at.start, it.at.end, it.kind));
    mutations.dedup_by(|one, other| one.at == other.at && one.instead == other.instead);
    Ok(mutations)
}

struct Found<'a> {
    file: &'a Path,
    text: &'a str,
    mutations: Vec<Mutation>,
}

impl Found<'_> {
    fn text(&self, node: Node<'_>) -> &str {
        &self.text[node.byte_range()]
    }

    fn add(&mut self, kind: Kind, at: Range<usize>, instead: impl Into<String>) {
        self.mutations.push(Mutation {
            file: self.file.to_owned(),
            kind,
            at,
            instead: instead.into(),
        });
    }

    /// `is_body`: within a function.
    fn visit(&mut self, node: Node<'_>, is_body: bool) {
        if self.is_for_tests(node) {
            return;
        }
        if is_body {
            self.mutate(node);
        }
        let is_body = is_body || matches!(node.kind(), "block" | "compound_statement");
        for child in node.named_children(&mut node.walk()) {
            self.visit(child, is_body);
        }
    }

    /// `#[cfg(test)] mod tests`
    fn is_for_tests(&self, node: Node<'_>) -> bool {
        let mut before = node.prev_named_sibling();
        while let Some(attribute) = before.filter(|it| it.kind() == "attribute_item") {
            if self.text(attribute).contains("test") {
                return true;
            }
            before = attribute.prev_named_sibling();
        }
        false
    }

    fn mutate(&mut self, node: Node<'_>) {
        match node.kind() {
            "expression_statement" => self.statement(node),
            "binary_expression" => self.binary(node),
            "assignment_expression" | "compound_assignment_expr" => self.compound(node),
            "call_expression" => self.call(node),
            "if_statement" | "if_expression" => self.condition(node),
            "conditional_expression" | "while_statement" | "while_expression" | "match_pattern" => {
                self.negation(node);
            }
            "number_literal" | "integer_literal" => self.literal(node),
            _ => {}
        }
    }

    fn statement(&mut self, node: Node<'_>) {
        let Some(inner) = node.named_child(0) else {
            return;
        };
        let is_compound = inner
            .child_by_field_name("operator")
            .is_some_and(|it| self.text(it) != "=");
        let (is_update, doubles) = match inner.kind() {
            "assignment_expression" if is_compound => (true, true),
            "assignment_expression" => (true, false),
            "compound_assignment_expr" | "update_expression" => (true, true),
            "call_expression" => {
                let called = inner.child_by_field_name("function");
                called.map_or((false, false), |it| is_update(self.text(it)))
            }
            _ => (false, false),
        };
        let twice = format!("{0} {0}", self.text(node));
        if is_update {
            self.add(Kind::DroppedUpdate, node.byte_range(), ";");
        }
        if doubles {
            self.add(Kind::DoubledUpdate, node.byte_range(), twice);
        }
    }

    fn binary(&mut self, node: Node<'_>) {
        let Some((left, operator, right)) = parts(node) else {
            return;
        };
        let at = operator.byte_range();
        match self.text(operator) {
            "&&" => {
                for kept in [left, right] {
                    // A `let` of a chain has no value of its own.
                    let kept = self.text(kept).to_owned();
                    self.add(Kind::ForgottenFilter, node.byte_range(), kept);
                }
            }
            "<" => {
                self.add(Kind::OffByOne, at.clone(), "<=");
                self.add(Kind::WrongComparison, at, ">");
            }
            "<=" => {
                self.add(Kind::OffByOne, at.clone(), "<");
                self.add(Kind::WrongComparison, at, ">=");
            }
            ">" => {
                self.add(Kind::OffByOne, at.clone(), ">=");
                self.add(Kind::WrongComparison, at, "<");
            }
            ">=" => {
                self.add(Kind::OffByOne, at.clone(), ">");
                self.add(Kind::WrongComparison, at, "<=");
            }
            "==" => self.add(Kind::WrongComparison, at, "!="),
            "!=" => self.add(Kind::WrongComparison, at, "=="),
            "+" => self.add(Kind::PlusForMinus, at, "-"),
            "-" => self.add(Kind::PlusForMinus, at, "+"),
            _ => {}
        }
    }

    fn compound(&mut self, node: Node<'_>) {
        let Some((_, operator, _)) = parts(node) else {
            return;
        };
        match self.text(operator) {
            "+=" => self.add(Kind::PlusForMinus, operator.byte_range(), "-="),
            "-=" => self.add(Kind::PlusForMinus, operator.byte_range(), "+="),
            _ => {}
        }
    }

    fn call(&mut self, node: Node<'_>) {
        let Some(function) = node.child_by_field_name("function") else {
            return;
        };
        let field = function.child_by_field_name("field");
        if let Some(value) = function.child_by_field_name("value")
            && field.is_some_and(|it| self.text(it) == "filter")
        {
            let unfiltered = self.text(value).to_owned();
            self.add(Kind::ForgottenFilter, node.byte_range(), unfiltered);
        }
        let Some(list) = node.child_by_field_name("arguments") else {
            return;
        };
        let arguments: Vec<Node<'_>> = list.named_children(&mut list.walk()).collect();
        for pair in arguments.windows(2) {
            let (first, second) = (self.text(pair[0]), self.text(pair[1]));
            if first != second {
                let between = &self.text[pair[0].end_byte()..pair[1].start_byte()];
                let swapped = format!("{second}{between}{first}");
                let at = pair[0].start_byte()..pair[1].end_byte();
                self.add(Kind::SwappedArguments, at, swapped);
            }
        }
    }

    /// An `if` around what leaves is never taken, any other always.
    fn condition(&mut self, node: Node<'_>) {
        self.negation(node);
        let (Some(condition), Some(then)) = (
            node.child_by_field_name("condition"),
            node.child_by_field_name("consequence"),
        ) else {
            return;
        };
        let leaves = ["return", "continue", "break", "goto"].iter().any(|word| {
            self.text(then)
                .trim_start_matches(['{', ' ', '\t', '\n'])
                .starts_with(word)
        });
        let constant = match (is_c(self.file), leaves) {
            (true, true) => "(0)",
            (true, false) => "(1)",
            (false, true) => "false",
            (false, false) => "true",
        };
        self.add(Kind::ForgottenFilter, condition.byte_range(), constant);
    }

    fn negation(&mut self, node: Node<'_>) {
        let Some(condition) = node.child_by_field_name("condition") else {
            return;
        };
        if condition.kind().starts_with("let_") {
            return;
        }
        let negated = if is_c(self.file) {
            format!("(!({}))", self.text(condition))
        } else {
            format!("!({})", self.text(condition))
        };
        self.add(Kind::NegatedCondition, condition.byte_range(), negated);
    }

    fn literal(&mut self, node: Node<'_>) {
        let is_arithmetic = node.parent().is_some_and(|parent| {
            matches!(
                parent.kind(),
                "binary_expression"
                    | "range_expression"
                    | "subscript_expression"
                    | "index_expression"
                    | "assignment_expression"
                    | "init_declarator"
            )
        });
        let text = self.text(node);
        if is_arithmetic && !text.starts_with("0x") && !text.starts_with('~') {
            let more = format!("({text} + 1)");
            self.add(Kind::OffByOne, node.byte_range(), more);
        }
    }

    /// Calls that give something back, also those in macros, of which there is no tree.
    fn unlocks(&mut self) {
        for name in [
            "bpf_spin_unlock(",
            "bpf_task_release(",
            "bpf_ringbuf_submit(",
        ] {
            for (start, _) in self.text.match_indices(name) {
                let Some(length) = self.text[start..].find(");") else {
                    continue;
                };
                let at = start..start + length + 1;
                self.add(Kind::LostUnlock, at, "(void)0");
            }
        }
    }
}

/// Whether a function changes what is counted, and whether a second call changes it again.
fn is_update(called: &str) -> (bool, bool) {
    let name = called.rsplit(['.', ':']).next().unwrap_or(called);
    match name {
        "__sync_fetch_and_add" | "push" | "push_str" | "add" | "record" => (true, true),
        "bpf_map_update_elem"
        | "bpf_map_delete_elem"
        | "insert"
        | "extend"
        | "remove"
        | "merge"
        | "clear"
        | "sort"
        | "sort_by_key"
        | "sort_by"
        | "sort_unstable"
        | "truncate"
        | "retain"
        | "dedup"
        | "reverse" => (true, false),
        _ => (false, false),
    }
}

fn parts(node: Node<'_>) -> Option<(Node<'_>, Node<'_>, Node<'_>)> {
    Some((
        node.child_by_field_name("left")?,
        node.child_by_field_name("operator")?,
        node.child_by_field_name("right")?,
    ))
}
#[cfg(test)]
mod tests;

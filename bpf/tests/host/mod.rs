//! A tool's programs on this machine, instead of in the kernel: `host/NAME.c`, loaded afresh for each replay.

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr;

use libloading::{Library, Symbol};
use tempfile::{NamedTempFile, TempPath};

use arguments::{Arguments, Before};

mod arguments;
pub(crate) mod buckets;
mod calls;
mod hotplug;
pub(crate) mod leaving;
pub(crate) mod machine;

/// CPUs whose values a map has where each CPU has its own.
pub(crate) const CPUS: usize = 8;

/// A file that goes with the test.
fn temporary() -> TempPath {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.into_temp_path()
}

/// The architecture's name in the kernel's sources. Stacks of both are walked anywhere.
fn architecture(tool: &str) -> &'static str {
    if tool == "unwind_arm64" || cfg!(target_arch = "aarch64") && tool != "unwind" {
        "-D__TARGET_ARCH_arm64"
    } else {
        "-D__TARGET_ARCH_x86"
    }
}

/// Compiles a tool's programs.
pub(crate) fn compile(tool: &str) -> TempPath {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let host = package.join("host");
    let object = temporary();
    let status = Command::new(env!("BPF_CLANG"))
        .args([architecture(tool), "-O1", "-g", "-fPIC", "-shared"])
        // Attributes are for relocation, headers have functions for every tool, and stacks are none.
        .args([
            "-Wall",
            "-Wno-unused-function",
            "-Wno-unused-but-set-variable",
            "-Wno-unknown-attributes",
        ])
        .args(["-Werror=implicit-function-declaration", "-Wl,-z,defs"])
        // What makes constants writable must not lie on their page.
        .arg("-Wl,-z,separate-code")
        .arg(format!("-I{}", host.display()))
        .arg(format!("-I{}", package.join("include").display()))
        .arg("-o")
        .arg(&object)
        .args([host.join(format!("{tool}.c")), host.join("host.c")])
        // Names of maps; older C libraries have that apart.
        .arg("-ldl")
        .status();
    assert!(status.expect("clang").success(), "{tool} does not compile");
    object
}

/// A loaded object. What its functions take is said beside them, in `host/`.
pub(crate) struct Host {
    library: Library,
    // Loaded once more under the same name, it would be the same object with the same maps.
    _copy: TempPath,
}

impl Host {
    pub(crate) fn load(object: &Path) -> Self {
        let copy = temporary();
        std::fs::copy(object, &copy).expect("a copy");
        // SAFETY: our own object, which runs nothing when it is loaded.
        let library = unsafe { Library::new(copy.as_os_str()) }.expect("an object");
        Self {
            library,
            _copy: copy,
        }
    }

    /// # Safety
    ///
    /// `F` is the function's type.
    pub(crate) unsafe fn function<F>(&self, name: &str) -> Symbol<'_, F> {
        // SAFETY: by our caller's word.
        unsafe { self.library.get(name.as_bytes()) }.expect("a function of the host")
    }

    /// Calls a function that gives nothing back, with arguments of the types that it has beside it in `host/`.
    pub(crate) fn tell(&self, name: &str, arguments: impl Arguments) {
        self.ask(name, arguments)
    }

    /// The same for one that gives `R` back.
    pub(crate) fn ask<R>(&self, name: &str, arguments: impl Arguments) -> R {
        // SAFETY: the types are the function's, and tests hand over what lives as long as it is used.
        unsafe { arguments.call(&self.library, name) }
    }

    /// Runs a program on an event with these arguments.
    pub(crate) fn run(&self, program: &str, arguments: &[u64]) {
        self.ask::<i32>(program, (arguments.as_ptr(),));
    }

    pub(crate) fn fork(&self, parent: *mut c_void, child: *mut c_void) {
        self.run("sched_process_fork", &[parent as u64, child as u64]);
    }

    /// A switch from one thread to another. Without a `state` the kernel leaves it to programs to look at that of the first.
    pub(crate) fn switch(&self, preempt: bool, tasks: [*mut c_void; 2], state: Option<u32>) {
        let (program, state) = match state {
            Some(state) => ("sched_switch", state.into()),
            None => ("sched_switch_pre_5_18", u64::MAX),
        };
        let [prev, next] = tasks.map(|task| task as u64);
        self.run(program, &[preempt.into(), prev, next, state]);
    }

    /// Gives what a function writes to where its last argument points.
    pub(crate) fn told<T: Default>(&self, name: &str, arguments: impl Before) -> T {
        let mut told = T::default();
        self.tell(name, arguments.and(&raw mut told));
        told
    }

    /// A map's value, which has the type `V`.
    pub(crate) fn entry<K, V: Copy>(&self, map: &str, key: &K) -> Option<V> {
        let map = *self.variable::<c_void>(map);
        let value = self.ask::<*const V>("host_entry", (map, key));
        // SAFETY: it is there until something runs.
        unsafe { value.as_ref() }.copied()
    }

    /// Keys and values of a map; `V` is an array of [`CPUS`] values where each CPU has its own.
    pub(crate) fn all<K: Copy, V: Copy>(&self, map: &str) -> Vec<(K, V)> {
        let mut all = Vec::new();
        self.visit(map, |key: K, value: V| {
            all.push((key, value));
            false
        });
        all
    }

    /// The same of some, which are no longer there then.
    pub(crate) fn take<K: Copy, V: Copy>(
        &self,
        map: &str,
        is_taken: impl Fn(&K) -> bool,
    ) -> Vec<(K, V)> {
        let mut taken = Vec::new();
        self.visit(map, |key: K, value: V| {
            let takes = is_taken(&key);
            taken.extend(takes.then_some((key, value)));
            takes
        });
        taken
    }

    fn visit<K: Copy, V: Copy, F: FnMut(K, V) -> bool>(&self, map: &str, mut takes: F) {
        type Takes<K, V, F> = extern "C" fn(*const K, *const V, *mut F) -> bool;
        extern "C" fn call<K: Copy, V: Copy, F: FnMut(K, V) -> bool>(
            key: *const K,
            value: *const V,
            takes: *mut F,
        ) -> bool {
            // SAFETY: the host hands over an entry, and what it was given.
            unsafe { (*takes)(*key, *value) }
        }
        let map = *self.variable::<c_void>(map);
        self.tell("host_visit", (map, call as Takes<K, V, F>, &mut takes));
    }

    /// The first words of a map's value, added up over all CPUs.
    pub(crate) fn sums<K, const N: usize>(&self, map: &str, key: &K) -> [u64; N] {
        let map = *self.variable::<c_void>(map);
        let mut sums = [0; N];
        self.tell("host_add_up", (map, key, &mut sums, N as u32));
        sums
    }

    /// A variable of the programs; `T` is its type.
    pub(crate) fn read<T: Copy>(&self, name: &str) -> T {
        // SAFETY: it is there as long as the object is, and nothing runs that would change it.
        unsafe { **self.variable(name) }
    }

    /// Sets a variable of the programs, as user space does.
    pub(crate) fn write<T: Copy>(&self, name: &str, value: T) {
        // SAFETY: as above.
        unsafe { **self.variable(name) = value };
    }

    /// Sets a constant of the programs, as a loader does.
    pub(crate) fn set<T: Copy>(&self, name: &str, value: &T) {
        let to = *self.variable::<c_void>(name);
        let bytes = size_of::<T>() as u64;
        self.tell("host_poke", (to, ptr::from_ref(value), bytes));
    }

    fn variable<T>(&self, name: &str) -> Symbol<'_, *mut T> {
        // SAFETY: only its address is taken.
        unsafe { self.library.get(name.as_bytes()) }.expect("a variable of the programs")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: its type; nothing of the object is used any more.
        unsafe { self.function::<unsafe extern "C" fn()>("host_free")() };
    }
}

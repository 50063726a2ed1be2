//! Endpoints: the files and connections that threads waited for in system calls.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::{endpoint, file_path};
use host::paths::Path;
use loader::maps;
use serde_json::{Value, json};

/// `enum endpoint_kind` of the BPF side.
mod kind {
    pub(super) const FILE: u8 = 1;
    pub(super) const UNIX: u8 = 2;
    pub(super) const IPV4: u8 = 3;
    pub(super) const IPV6: u8 = 4;
}

/// Words before the name that clients called.
const CLIENTS: &str = "clients of ";

/// A file, or an end of connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A file, by its path, or by its inode and device where that is not known.
    File(String),
    /// The other end of connections, and whether the protocol is UDP.
    Peer(SocketAddr, bool),
    /// Connections that were accepted, whoever called: the port that they called, and whether the protocol is UDP.
    Clients(u16, bool),
    /// A Unix socket by the name that was called, empty where it is not known; and whether this end was accepted there.
    Unix(String, bool),
}

impl Endpoint {
    /// `None`: of a kind that is not known here.
    fn of(told: &endpoint, path: Option<&file_path>) -> Option<Self> {
        let is_udp = i32::from(told.protocol) == libc::IPPROTO_UDP;
        let port = told.port;
        Some(match (told.kind, told.is_accepted != 0) {
            (kind::FILE, _) => Self::file(told, path),
            (kind::UNIX, is_accepted) => {
                Self::Unix(path.map(unix_name).unwrap_or_default(), is_accepted)
            }
            (kind::IPV4 | kind::IPV6, true) => Self::Clients(port, is_udp),
            (kind::IPV4, false) => Self::Peer((ipv4(told), port).into(), is_udp),
            (kind::IPV6, false) => Self::Peer((ipv6(told), port).into(), is_udp),
            _ => return None,
        })
    }

    fn file(told: &endpoint, path: Option<&file_path>) -> Self {
        let path = path.and_then(|path| Path::of(&path.names, path.is_whole != 0));
        let [inode, device] = told.address;
        // Above it is a print; MINORBITS of include/linux/kdev_t.h.
        let device = device & u64::from(u32::MAX);
        let (major, minor) = (device >> 20, device & 0xf_ffff);
        Self::File(match path {
            Some(path) => path.to_string(),
            None => format!("inode {inode} on {major}:{minor}"),
        })
    }

    /// Tells if it is of connections.
    pub(crate) fn is_connection(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// Tells if its name is a path, or may be one.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self, Self::File(_) | Self::Unix(..))
    }

    /// Words before its name, and the name.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        let udp = |is_udp: bool| if is_udp { " (UDP)" } else { "" };
        match self {
            Self::File(path) => ("", path.clone()),
            Self::Peer(to, is_udp) => ("", format!("{to}{}", udp(*is_udp))),
            Self::Clients(port, is_udp) => (CLIENTS, format!("port {port}{}", udp(*is_udp))),
            Self::Unix(name, is_accepted) => {
                let name = match name.chars().next() {
                    None => "a Unix socket".to_owned(),
                    Some('/' | '@') => name.clone(),
                    // A relative path may look like anything.
                    Some(_) => format!("unix:{name}"),
                };
                (if *is_accepted { CLIENTS } else { "" }, name)
            }
        }
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let protocol = |is_udp: bool| if is_udp { "udp" } else { "tcp" };
        match self {
            Self::File(path) => json!({ "file": path }),
            Self::Peer(to, is_udp) => {
                json!({ "peer": to.to_string(), "protocol": protocol(*is_udp) })
            }
            Self::Clients(port, is_udp) => {
                json!({ "clients_of": port.to_string(), "protocol": protocol(*is_udp) })
            }
            Self::Unix(name, is_accepted) => {
                let end = if *is_accepted { "clients_of" } else { "peer" };
                let known = Some(name).filter(|name| !name.is_empty());
                json!({ end: known, "protocol": "unix" })
            }
        }
    }
}

fn ipv4(told: &endpoint) -> IpAddr {
    let [a, b, c, d, ..] = told.address[0].to_ne_bytes();
    Ipv4Addr::new(a, b, c, d).into()
}

/// An IPv4 address of an IPv6 socket's is one of IPv4.
fn ipv6(told: &endpoint) -> IpAddr {
    let mut bytes = [0; 16];
    for (part, word) in bytes.chunks_exact_mut(8).zip(told.address) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

/// A name as it was bound, in the first words: a path, or behind a NUL an abstract name, whose own NULs are `@`, as in /proc/net/unix.
fn unix_name(path: &file_path) -> String {
    let words = path.names.iter().flatten();
    let bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().rposition(|byte| *byte != 0);
    let name = &bytes[..end.map_or(0, |last| last + 1)];
    String::from_utf8_lossy(name).replace('\0', "@")
}

/// All that were waited for, by their numbers.
///
/// # Errors
///
/// The tables cannot be read.
pub(crate) fn read(skel: &OffcputimeSkel<'_>) -> Result<HashMap<u64, Endpoint>> {
    let paths = maps::entries::<u64, file_path>(&skel.maps.endpoint_paths)?;
    let paths: HashMap<u64, file_path> = paths.into_iter().collect();
    let told = maps::entries::<u64, endpoint>(&skel.maps.endpoints)?.into_iter();
    let known = told.filter_map(|(number, told)| {
        let known = Endpoint::of(&told, paths.get(&number))?;
        Some((number, known))
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: u8, bytes: &[u8], port: u16) -> endpoint {
        let mut address = [0; 16];
        address[..bytes.len()].copy_from_slice(bytes);
        let word = |at: usize| u64::from_ne_bytes(address[at..at + 8].try_into().unwrap());
        endpoint {
            address: [word(0), word(8)],
            port,
            kind,
            protocol: 6,
            ..endpoint::default()
        }
    }

    fn words(told: &endpoint, path: Option<&file_path>) -> String {
        let (before, name) = Endpoint::of(told, path).expect("it is known").parts();
        format!("{before}{name}")
    }

    fn path(bytes: &[u8]) -> file_path {
        let mut path = file_path::default();
        for (at, byte) in bytes.iter().enumerate() {
            path.names[0][at / 8] |= u64::from(*byte) << (8 * (at % 8));
        }
        path
    }

    #[test]
    fn the_other_end_has_its_address_and_who_was_accepted_the_port_that_it_called() {
        let mut one = told(kind::IPV4, &[10, 0, 0, 7], 5432);
        assert_eq!(words(&one, None), "10.0.0.7:5432");
        one.protocol = 17;
        assert_eq!(words(&one, None), "10.0.0.7:5432 (UDP)");
        one.is_accepted = 1;
        one.protocol = 6;
        assert_eq!(words(&one, None), "clients of port 5432");
        let six = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets();
        assert_eq!(words(&told(kind::IPV6, &six, 80), None), "[fd00::1]:80");
        let mapped = Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets();
        let mapped = told(kind::IPV6, &mapped, 80);
        assert_eq!(words(&mapped, None), "10.0.0.7:80");
    }

    #[test]
    fn a_unix_socket_has_the_name_that_it_was_bound_to() {
        let mut one = told(kind::UNIX, &[1], 0);
        assert_eq!(words(&one, Some(&path(b"/run/x.sock"))), "/run/x.sock");
        assert_eq!(words(&one, Some(&path(b"\0x\0y"))), "@x@y");
        assert_eq!(words(&one, None), "a Unix socket");
        let relative = path(b"10.0.0.7:5432");
        assert_eq!(words(&one, Some(&relative)), "unix:10.0.0.7:5432");
        one.is_accepted = 1;
        let clients = words(&one, Some(&path(b"/run/x.sock")));
        assert_eq!(clients, "clients of /run/x.sock");
    }

    #[test]
    fn a_file_without_a_path_is_known_by_its_inode() {
        let mut one = told(kind::FILE, &[], 0);
        one.address = [4711, 0xfeed << 32 | 8 << 20 | 3];
        assert_eq!(words(&one, None), "inode 4711 on 8:3");
        assert_eq!(words(&one, Some(&path(b"wal"))), "wal");
        assert_eq!(Endpoint::of(&told(0, &[], 0), None), None);
    }
}

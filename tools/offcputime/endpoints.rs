//! Endpoints: the files and connections that threads waited for in system calls.

use std::collections::HashMap;
use std::fmt;
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

/// A file, or an end of connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A file, by its path, or by its inode and device where that is not known.
    File(String),
    /// The other end of connections.
    Peer(Place),
    /// Connections that were accepted, whoever called: the place that they called.
    Clients(Place),
}

/// A place that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// An address, and whether the protocol is UDP.
    Address(SocketAddr, bool),
    /// A port of this machine, whatever address was called.
    Port(u16, bool),
    /// The name of a Unix socket; abstract ones begin with `@`.
    Unix(String),
}

impl Endpoint {
    /// `None`: of a kind that is not known here.
    fn of(told: &endpoint, path: Option<&file_path>) -> Option<Self> {
        let is_udp = i32::from(told.protocol) == libc::IPPROTO_UDP;
        let port = told.port;
        let place = match (told.kind, told.is_accepted != 0) {
            (kind::FILE, _) => return Some(Self::file(told, path)),
            (kind::UNIX, _) => Place::Unix(path.map(unix_name).unwrap_or_default()),
            (kind::IPV4 | kind::IPV6, true) => Place::Port(port, is_udp),
            (kind::IPV4, false) => Place::Address((ipv4(told), port).into(), is_udp),
            (kind::IPV6, false) => Place::Address((ipv6(told), port).into(), is_udp),
            _ => return None,
        };
        Some(match told.is_accepted {
            0 => Self::Peer(place),
            _ => Self::Clients(place),
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
        match self {
            Self::File(_) => true,
            Self::Peer(place) | Self::Clients(place) => matches!(place, Place::Unix(_)),
        }
    }

    /// Words before its name, and the name.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        match self {
            Self::File(path) => ("", path.clone()),
            Self::Peer(place) => ("", place.to_string()),
            Self::Clients(place) => ("clients of ", place.to_string()),
        }
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let protocol = |is_udp: bool| if is_udp { "udp" } else { "tcp" };
        let known = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match self {
            Self::File(path) => json!({ "file": path }),
            Self::Peer(Place::Address(to, is_udp)) => {
                json!({ "peer": to.to_string(), "protocol": protocol(*is_udp) })
            }
            Self::Clients(Place::Port(port, is_udp)) => {
                json!({ "clients_of": port.to_string(), "protocol": protocol(*is_udp) })
            }
            Self::Peer(Place::Unix(name)) => json!({ "peer": known(name), "protocol": "unix" }),
            Self::Clients(Place::Unix(name)) => {
                json!({ "clients_of": known(name), "protocol": "unix" })
            }
            Self::Peer(Place::Port(..)) | Self::Clients(Place::Address(..)) => Value::Null,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let udp = |is_udp: &bool| if *is_udp { " (UDP)" } else { "" };
        match self {
            Self::Address(to, is_udp) => write!(f, "{to}{}", udp(is_udp)),
            Self::Port(port, is_udp) => write!(f, "port {port}{}", udp(is_udp)),
            Self::Unix(name) if name.is_empty() => f.write_str("a Unix socket"),
            Self::Unix(name) if name.starts_with(['/', '@']) => f.write_str(name),
            // A relative path may look like anything.
            Self::Unix(name) => write!(f, "unix:{name}"),
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

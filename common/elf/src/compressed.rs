//! Compressed sections, with a limit on what comes out.

use std::io::Read;

use crate::error::Error;
use flate2::read::ZlibDecoder;

/// ELFCOMPRESS_ZLIB
const ZLIB: u32 = 1;

/// Inflates a section with SHF_COMPRESSED. Its header is an Elf64_Chdr: type (4 bytes), 4 bytes unused, size, alignment.
pub fn inflate(bytes: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
    let Some((header, data)) = bytes.split_first_chunk::<24>() else {
        return Err(Error::Malformed("compressed section"));
    };
    let [k0, k1, k2, k3, _, _, _, _, size @ ..] = *header;
    if u32::from_le_bytes([k0, k1, k2, k3]) != ZLIB {
        return Err(Error::Malformed("compression (only zlib is known)"));
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7, ..] = size;
    let size = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    zlib(data, size, limit)
}

/// Inflates a section in the older format: "ZLIB", the size, big endian.
pub fn inflate_gnu(bytes: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
    let size = bytes
        .strip_prefix(b"ZLIB")
        .and_then(|rest| rest.split_first_chunk());
    let (size, data) = size.ok_or(Error::Malformed("compressed section"))?;
    zlib(data, u64::from_be_bytes(*size), limit)
}

fn zlib(data: &[u8], size: u64, limit: u64) -> Result<Vec<u8>, Error> {
    if size > limit {
        return Err(Error::TooLarge("compressed section"));
    }
    let mut bytes = Vec::new();
    // The claimed size is not allocated before the bytes are there.
    ZlibDecoder::new(data).take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != size {
        return Err(Error::Malformed("compressed section"));
    }
    Ok(bytes)
}

//! Colours. Hue says what kind of code it is, the shade only tells neighbours apart.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use crate::tree::Class;

/// Hue, saturation and lightness of a class; dark text reads well on all of them.
fn base(class: Class) -> (u32, u32, u32) {
    match class {
        Class::Task => (215, 28, 86),
        Class::Reason => (215, 45, 76),
        Class::Idle => (0, 0, 84),
        Class::Function => (36, 80, 74),
        Class::User => (48, 92, 70),
        Class::Inlined => (188, 52, 74),
        Class::Jit => (138, 42, 72),
        Class::Kernel => (20, 88, 70),
        Class::Waker => (282, 44, 80),
        Class::Separator => (0, 0, 92),
    }
}

/// The colour of a legend's square.
pub(super) fn of_class(class: Class) -> String {
    let (hue, saturation, lightness) = base(class);
    hex(hue, saturation, lightness)
}

/// The same name has the same shade in every graph.
pub(super) fn of_name(class: Class, name: &str) -> String {
    let (hue, saturation, lightness) = base(class);
    let mut hasher = FixedState::with_seed(0).build_hasher();
    hasher.write(name.as_bytes());
    let shade = (hasher.finish() % 9) as u32;
    hex(hue, saturation, lightness - 4 + shade)
}

/// From blue (less) over white to red (more), a scale that all kinds of colour vision tell apart: ColorBrewer's RdBu.
/// `change` is -1 to 1.
pub(super) fn of_change(change: f64) -> String {
    let ends = if change > 0.0 {
        (0xd6, 0x4b, 0x40)
    } else {
        (0x3f, 0x86, 0xc4)
    };
    // The smallest change that is shown must be seen.
    let depth = 0.25 + 0.75 * change.abs().min(1.0);
    let mix = |end: u32| (255.0 - (255.0 - f64::from(end)) * depth).round() as u32;
    format!("#{:02x}{:02x}{:02x}", mix(ends.0), mix(ends.1), mix(ends.2))
}

/// Changes within chance.
pub(super) const UNCHANGED: &str = "#e4e4e4";

fn hex(hue: u32, saturation: u32, lightness: u32) -> String {
    let (saturation, lightness) = (f64::from(saturation) / 100.0, f64::from(lightness) / 100.0);
    let amplitude = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f64| {
        let k = (n + f64::from(hue) / 30.0) % 12.0;
        let value = lightness - amplitude * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!(
        "#{:02x}{:02x}{:02x}",
        channel(0.0),
        channel(8.0),
        channel(4.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_what_they_should_be() {
        assert_eq!(hex(0, 100, 50), "#ff0000");
        assert_eq!(hex(120, 100, 25), "#008000");
        assert_eq!(hex(215, 0, 92), "#ebebeb");
        assert_eq!(of_change(1.0), "#d64b40");
        assert_eq!(of_change(-1.0), "#3f86c4");
    }
}

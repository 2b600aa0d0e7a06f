// SPDX-License-Identifier: Apache-2.0
//! What a scan would find out, in a form that answers one question with a few small reads, however many reservations
//! there are: which addresses does this attachment hold, and which address is the next one that is not taken.
//!
//! **Never the truth.** The reservations' files are; what the index says of an owner is compared with the file, an
//! address that it calls unused is still created exclusively, and without an index everything works by scanning. It
//! lives under `/run/cnibox/host-local`, one file for each state directory, named by its path, and may be deleted at any
//! time. Those of directories that are gone go with the next scan of any.
//!
//! **When it is believed.** Its header holds the state directory's modification and change time, taken under the
//! lock at the end of the last call. Whoever adds or removes a file (a Go plugin, a person) moves the former, and the
//! next call scans. Kernels before 6.13 move it in steps of a clock tick, so two changes can carry the same time: the
//! call therefore ends by *setting* the directory's time to the nanosecond of now. The kernel stamps with the time of
//! a tick, which is either before that nanosecond or, for a later tick, after it, so no later change can leave the
//! time as it was. A file system that does not keep nanoseconds gets no index.
//!
//! **Crashes.** A call changes the directory before it changes the index, and stamps the index last: a process that
//! dies in between leaves a stamp that no longer matches. The header carries the boot's name, so that nothing from
//! before a power failure is believed, and header and buckets carry checksums.
//!
//! Layout, in pages of 512 bytes: the header; a power of two of buckets, each with 15 entries of 32 bytes (an owner's
//! hash and an address, or the position of a bitmap) and a checksum; then bitmaps, each for 4096 addresses.

use std::net::IpAddr;

use crate::fnv;
use crate::range::{from_bits, to_bits};

/// Bytes of a page.
pub(crate) const PAGE: usize = 512;
/// A page.
pub(crate) type Page = [u8; PAGE];

/// Where the pages are kept: a file, or memory while an index is built.
pub(crate) trait Pages {
    /// The page at this position; `None` when there is none.
    fn page(&self, at: u64) -> Option<Page>;
    /// Writes a page, the first one after the end included. `None`: it could not be written.
    fn put(&mut self, at: u64, page: &Page) -> Option<()>;
    /// How many pages there are.
    fn count(&self) -> Option<u64>;
}

impl Pages for Vec<Page> {
    fn page(&self, at: u64) -> Option<Page> {
        self.get(usize::try_from(at).ok()?).copied()
    }
    fn put(&mut self, at: u64, page: &Page) -> Option<()> {
        let at = usize::try_from(at).ok()?;
        if at == self.len() {
            self.push(*page);
            return Some(());
        }
        self.get_mut(at).map(|old| *old = *page)
    }
    fn count(&self) -> Option<u64> {
        u64::try_from(self.len()).ok()
    }
}

/// What must be as it was for an index to be believed: boot, device, inode, times.
pub(crate) type Stamp = [u8; 56];

/// An index over its pages. Every operation that answers `None` has met damage or a full disk: the index is to be
/// given up and the files scanned.
#[derive(Debug)]
pub(crate) struct Index<P> {
    pages: P,
    buckets: u64,
    entries: u64,
}

const MAGIC: &[u8; 8] = b"cnibxhl1";
/// Entries in a bucket.
const SLOTS: usize = 15;
/// Bytes of an entry.
const SLOT: usize = 32;
/// Where a page's checksum stands.
const SUM: usize = PAGE - 8;
/// Addresses in a bitmap.
const BITMAP: u128 = 1 << 12;
/// The smallest number of buckets.
const MIN_BUCKETS: u64 = 64;
/// An index grows when its buckets hold more entries than this on average.
const CROWDED: u64 = 8;

/// An entry of a bucket: byte 0 kind, bytes 4..8 a bitmap's number, 8..16 key, 16..32 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// An attachment, by its hash, holds an address.
    Owned { key: u64, ip: IpAddr },
    /// The bitmap for 4096 addresses from this one on has this number.
    Bitmap { base: IpAddr, number: u32 },
}

const EMPTY: u8 = 0;
/// An entry that was removed from a bucket that was full: what did not fit is in the next bucket.
const REMOVED: u8 = 1;
const OWNED: u8 = 2;
const BITS: u8 = 4;

impl Entry {
    fn hash(self) -> u64 {
        match self {
            Self::Owned { key, .. } => key,
            Self::Bitmap { base, .. } => {
                fnv::hash(&[&[u8::from(base.is_ipv4())], &to_bits(base).to_le_bytes()])
            }
        }
    }

    fn write(self) -> [u8; SLOT] {
        let (kind, number, key, ip) = match self {
            Self::Owned { key, ip } => (OWNED, 0, key, ip),
            Self::Bitmap { base, number } => (BITS, number, 0, base),
        };
        let kind = kind + u8::from(ip.is_ipv4());
        let head = u128::from(key) << 64 | u128::from(number) << 32 | u128::from(kind);
        let mut slot = [0; SLOT];
        slot.copy_from_slice([head.to_le_bytes(), to_bits(ip).to_le_bytes()].as_flattened());
        slot
    }

    fn read(slot: &[u8]) -> Option<Self> {
        let kind = *slot.first()?;
        let number = u32::from_le_bytes(slot.get(4..8)?.try_into().ok()?);
        let key = u64::from_le_bytes(slot.get(8..16)?.try_into().ok()?);
        let bits = u128::from_le_bytes(slot.get(16..32)?.try_into().ok()?);
        let family = if kind & 1 == 1 { V4 } else { V6 };
        let ip = from_bits(bits, family)?;
        match kind & !1 {
            OWNED => Some(Self::Owned { key, ip }),
            BITS => Some(Self::Bitmap { base: ip, number }),
            _ => None,
        }
    }
}

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);

impl<P: Pages> Index<P> {
    /// Opens an index whose stamp is `stamp`.
    pub(crate) fn open(pages: P, stamp: &Stamp) -> Option<Self> {
        let header = pages.page(0).filter(is_whole)?;
        let (magic, rest) = header.split_at(8);
        let (counts, rest) = rest.split_at(16);
        let (buckets, entries) = counts.split_at(8);
        let buckets = u64::from_le_bytes(buckets.try_into().ok()?);
        let entries = u64::from_le_bytes(entries.try_into().ok()?);
        let believed = magic == MAGIC && rest.starts_with(stamp) && buckets.is_power_of_two();
        believed.then_some(Self { pages, buckets, entries })
    }

    /// Writes the header: from now on the index is believed as long as `stamp` holds.
    pub(crate) fn seal(&mut self, stamp: &Stamp) -> Option<()> {
        let mut header = [0; PAGE];
        let fields = [&MAGIC[..], &self.buckets.to_le_bytes(), &self.entries.to_le_bytes(), stamp].concat();
        header.get_mut(..fields.len())?.copy_from_slice(&fields);
        put_sum(&mut header);
        self.pages.put(0, &header)
    }

    /// Notes that an address is taken, and by whom when that is known.
    pub(crate) fn insert(&mut self, owner: Option<&str>, ip: IpAddr) -> Option<()> {
        if let Some(owner) = owner {
            self.add(Entry::Owned { key: key(owner), ip })?;
        }
        let number = match self.bitmap(ip)? {
            Some(number) => number,
            None => self.add_bitmap(ip)?,
        };
        self.set_bit(number, ip, true)
    }

    /// Notes that an address is free again.
    pub(crate) fn remove(&mut self, owner: &str, ip: IpAddr) -> Option<()> {
        self.take_out(Entry::Owned { key: key(owner), ip })?;
        let number = self.bitmap(ip)?;
        number.map_or(Some(()), |number| self.set_bit(number, ip, false))
    }

    /// The addresses that may be an owner's.
    pub(crate) fn addresses_of(&self, owner: &str) -> Option<Vec<IpAddr>> {
        let key = key(owner);
        let owned = |(_, _, entry)| match entry {
            Some(Entry::Owned { key: other, ip }) if other == key => Some(ip),
            Some(Entry::Owned { .. } | Entry::Bitmap { .. }) | None => None,
        };
        Some(self.slots(key)?.into_iter().filter_map(owned).collect())
    }

    /// The first address of `from..=to` that is not taken; the inner `None` when all are.
    pub(crate) fn first_unused(&self, from: IpAddr, to: IpAddr) -> Option<Option<IpAddr>> {
        let (mut at, end) = (to_bits(from), to_bits(to));
        while at <= end {
            let base = at / BITMAP * BITMAP;
            let Some(number) = self.bitmap(from_bits(base, from)?)? else { break };
            let bits = self.pages.page(self.place_of(number))?;
            let last = (end - base).min(BITMAP - 1);
            if let Some(free) = first_clear(&bits, (at - base) as usize, last as usize) {
                return Some(from_bits(base + free as u128, from));
            }
            let Some(next) = base.checked_add(BITMAP) else { return Some(None) };
            at = next;
        }
        Some(if at <= end { from_bits(at, from) } else { None })
    }

    /// Whether it is time for more buckets.
    pub(crate) fn is_crowded(&self) -> bool {
        self.entries > self.buckets * CROWDED
    }

    /// The same index in memory, with buckets for twice as many entries.
    pub(crate) fn grown(&self) -> Option<Index<Vec<Page>>> {
        let mut grown = Index::empty(self.entries * 2);
        for at in 0..self.buckets {
            let bucket = self.bucket(at)?;
            let entries = (0..SLOTS).filter_map(|slot| Entry::read(slot_of(&bucket, slot)));
            entries.map(|entry| grown.add(entry)).collect::<Option<()>>()?;
        }
        for at in 1 + self.buckets..self.pages.count()? {
            grown.pages.push(self.pages.page(at)?);
        }
        Some(grown)
    }

    fn add_bitmap(&mut self, ip: IpAddr) -> Option<u32> {
        let number = u32::try_from(self.pages.count()?.checked_sub(1 + self.buckets)?).ok()?;
        self.pages.put(self.place_of(number), &[0; PAGE])?;
        self.add(Entry::Bitmap { base: base(ip)?, number })?;
        Some(number)
    }

    /// The number of the bitmap that an address is in.
    fn bitmap(&self, ip: IpAddr) -> Option<Option<u32>> {
        let wanted = base(ip)?;
        let number = |(_, _, entry)| match entry {
            Some(Entry::Bitmap { base, number }) if base == wanted => Some(number),
            Some(Entry::Owned { .. } | Entry::Bitmap { .. }) | None => None,
        };
        Some(self.slots(Entry::Bitmap { base: wanted, number: 0 }.hash())?.into_iter().find_map(number))
    }

    fn place_of(&self, number: u32) -> u64 {
        1 + self.buckets + u64::from(number)
    }

    fn set_bit(&mut self, number: u32, ip: IpAddr, taken: bool) -> Option<()> {
        let place = self.place_of(number);
        let mut bits = self.pages.page(place)?;
        let at = (to_bits(ip) % BITMAP) as usize;
        let byte = bits.get_mut(at / 8)?;
        if taken {
            *byte |= 1 << (at % 8);
        } else {
            *byte &= !(1 << (at % 8));
        }
        self.pages.put(place, &bits)
    }

    fn add(&mut self, entry: Entry) -> Option<()> {
        let slots = self.slots(entry.hash())?;
        if slots.iter().any(|(_, _, found)| *found == Some(entry)) {
            return Some(());
        }
        let (bucket, slot, _) = slots.into_iter().find(|(_, _, found)| found.is_none())?;
        self.entries += 1;
        self.put_slot(bucket, slot, &entry.write())
    }

    fn take_out(&mut self, entry: Entry) -> Option<()> {
        let found = self.slots(entry.hash())?.into_iter().find(|(_, _, found)| *found == Some(entry));
        let Some((at, slot, _)) = found else { return Some(()) };
        let mut vacated = [0; SLOT];
        if !has_end(&self.bucket(at)?) {
            *vacated.first_mut()? = REMOVED;
        }
        self.entries = self.entries.checked_sub(1)?;
        self.put_slot(at, slot, &vacated)
    }

    fn put_slot(&mut self, at: u64, slot: usize, content: &[u8; SLOT]) -> Option<()> {
        let mut bucket = self.bucket(at)?;
        bucket.get_mut(slot * SLOT..(slot + 1) * SLOT)?.copy_from_slice(content);
        put_sum(&mut bucket);
        self.pages.put(1 + at, &bucket)
    }

    /// Every slot where an entry with this hash may be, as bucket, slot and what is there: bucket by bucket up to the first
    /// that was never full.
    fn slots(&self, hash: u64) -> Option<Vec<(u64, usize, Option<Entry>)>> {
        let mut slots = Vec::with_capacity(SLOTS);
        for step in 0..self.buckets {
            let at = hash.wrapping_add(step) & (self.buckets - 1);
            let bucket = self.bucket(at)?;
            slots.extend((0..SLOTS).map(|slot| (at, slot, Entry::read(slot_of(&bucket, slot)))));
            if has_end(&bucket) {
                return Some(slots);
            }
        }
        None
    }

    fn bucket(&self, at: u64) -> Option<Page> {
        self.pages.page(1 + at).filter(is_whole)
    }
}

impl Index<Vec<Page>> {
    /// An index of nothing, in memory, with room for `expected` entries.
    pub(crate) fn empty(expected: u64) -> Self {
        let buckets = (expected / CROWDED + 1).next_power_of_two().max(MIN_BUCKETS);
        let mut bucket = [0; PAGE];
        put_sum(&mut bucket);
        let mut pages = vec![bucket; usize::try_from(buckets).unwrap_or_default()];
        pages.insert(0, [0; PAGE]);
        Self { pages, buckets, entries: 0 }
    }

    /// Its content as a file's.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.pages.concat()
    }
}

fn key(owner: &str) -> u64 {
    fnv::hash(&[owner.as_bytes()])
}

/// The first address of the bitmap that `ip` is in.
fn base(ip: IpAddr) -> Option<IpAddr> {
    from_bits(to_bits(ip) / BITMAP * BITMAP, ip)
}

fn slot_of(bucket: &Page, slot: usize) -> &[u8] {
    bucket.get(slot * SLOT..(slot + 1) * SLOT).unwrap_or_default()
}

/// Whether a bucket has a slot that was never needed, so that nothing went on to the next bucket.
fn has_end(bucket: &Page) -> bool {
    (0..SLOTS).any(|slot| slot_of(bucket, slot).first() == Some(&EMPTY))
}

fn first_clear(bits: &Page, from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at <= to {
        let byte = *bits.get(at / 8)? >> (at % 8);
        let ones = byte.trailing_ones() as usize;
        if ones < 8 - at % 8 {
            return (at + ones <= to).then_some(at + ones);
        }
        at = (at / 8 + 1) * 8;
    }
    None
}

fn sum(page: &Page) -> u64 {
    // The magic keeps an empty page from being whole.
    fnv::hash(&[MAGIC, page.get(..SUM).unwrap_or_default()])
}

fn put_sum(page: &mut Page) {
    let sum = sum(page).to_le_bytes();
    page[SUM..].copy_from_slice(&sum);
}

fn is_whole(page: &Page) -> bool {
    page[SUM..] == sum(page).to_le_bytes()
}

#[cfg(test)]
mod tests;

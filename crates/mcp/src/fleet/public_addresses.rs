//! Which addresses anybody on the internet could reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names to public addresses only. What a name stands for is decided here, when a connection is made, and not
/// before: a name may stand for another machine a moment later.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicResolver;

const NOT_PUBLIC: &str = "the name stands for an address that is not public, which the gateway does not connect to";

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NOT_PUBLIC.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether the address belongs neither to this machine nor to a network of its own.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, shared address space, protocol assignments, benchmarks, and everything from multicast on.
        (0 | 224..=255, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) => true,
        _ => false,
    };
    !is_special
        && !address.is_loopback()
        && !address.is_private()
        && !address.is_link_local()
        && !address.is_documentation()
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Addresses of the older protocol inside: mapped, compatible, translated, and 6to4.
    let segments = address.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => {
            !address.is_loopback() && !address.is_unspecified() && inner(high, low)
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => inner(high, low),
        // Global unicast, without Teredo and documentation.
        [0x2001, 0 | 0xdb8, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_anybody_could_reach_are_public() {
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "10.0.0.8",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001:0:4136::1",
        ] {
            assert!(!is_public(address.parse().expect("an address")), "{address}");
        }
        for address in
            ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
    }
}

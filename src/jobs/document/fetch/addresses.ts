/**
 * Which network addresses the job connects to.
 *
 * A worker stands inside a network that the author of a request does not, so a request must not make it read the
 * worker's own services, its neighbours or a cloud's metadata. What counts is the address that is connected to: names
 * are checked after resolution, by the same lookup that the connection uses, since a name may resolve to another
 * address a moment later. Decides; does not fetch.
 */
import { lookup as systemLookup, type LookupAddress } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { failure } from '../failure.js';

/** Ranges that are not public, with the word that a message uses for them. */
const NOT_PUBLIC: readonly (readonly [cidr: string, what: string])[] = [
  ['0.0.0.0/8', 'unspecified'],
  ['10.0.0.0/8', 'private'],
  ['100.64.0.0/10', 'shared by a carrier'],
  ['127.0.0.0/8', 'loopback'],
  ['169.254.0.0/16', 'link-local'],
  ['172.16.0.0/12', 'private'],
  ['192.0.0.0/24', 'reserved'],
  ['192.0.2.0/24', 'reserved'],
  ['192.88.99.0/24', 'reserved'],
  ['192.168.0.0/16', 'private'],
  ['198.18.0.0/15', 'reserved'],
  ['198.51.100.0/24', 'reserved'],
  ['203.0.113.0/24', 'reserved'],
  ['224.0.0.0/4', 'multicast'],
  ['240.0.0.0/4', 'reserved'],
  ['::/128', 'unspecified'],
  ['::1/128', 'loopback'],
  // Translated forms: the IPv4 address inside them could be any of the above.
  ['::/96', 'reserved'],
  ['64:ff9b::/96', 'translated'],
  ['64:ff9b:1::/48', 'translated'],
  ['2002::/16', 'translated'],
  ['2001::/32', 'translated'],
  ['2001::/23', 'reserved'],
  ['100::/64', 'reserved'],
  ['2001:db8::/32', 'reserved'],
  ['3fff::/20', 'reserved'],
  ['fc00::/7', 'private'],
  ['fe80::/10', 'link-local'],
  ['fec0::/10', 'private'],
  ['ff00::/8', 'multicast'],
];

/** All public IPv6 addresses are of this network so far; what is new elsewhere is not public until it is known. */
const PUBLIC_IPV6 = '2000::/3';

/** Which addresses and hosts one kind of source may connect to. */
export interface AddressPolicy {
  /** Null when the address may be connected to, otherwise what kind of address it is. */
  refusal(address: string, host: string): string | null;
  /** The setting that allows more. */
  readonly setting: string;
  readonly env: string;
}

/** Public addresses, and what the operator listed. The policy of `url` sources. */
export function publicAddresses(allowed: readonly string[]): AddressPolicy {
  const rule = allowRule(allowed, 'document.allow_urls');
  const ranges = NOT_PUBLIC.map(([cidr, what]) => ({ list: blockList(cidr), what }));
  const publicIpv6 = blockList(PUBLIC_IPV6);
  return {
    setting: 'document.allow_urls',
    env: 'ATLAS_DOCUMENT_ALLOW_URLS',
    refusal(address, host) {
      if (rule(address, host)) return null;
      const plain = unmapped(address);
      const family = familyOf(plain);
      if (family === null) return 'not an IP address';
      const what = ranges.find(({ list }) => list.check(plain, family))?.what;
      if (what !== undefined) return what;
      return family === 'ipv6' && !publicIpv6.check(plain, family) ? 'reserved' : null;
    },
  };
}

/** Only what the operator listed. The policy of files that a command line serves, and of where artifacts are sent. */
export function listedAddresses(allowed: readonly string[]): AddressPolicy {
  const rule = allowRule(allowed, 'document.allow_served');
  return {
    setting: 'document.allow_served',
    env: 'ATLAS_DOCUMENT_ALLOW_SERVED',
    refusal: (address, host) => (rule(address, host) ? null : 'not listed'),
  };
}

/**
 * A lookup for `http.request` that answers only with addresses that the policy allows. A host with none of them ends
 * in `AddressRefused`. It is not called for a host that is an address already: see {@link checkHost}.
 */
export function guardedLookup(policy: AddressPolicy, resolve: typeof systemLookup = systemLookup): LookupFunction {
  return (host, options, callback) => {
    resolve(host, { ...options, all: true }, (error, found: LookupAddress[]) => {
      if (error !== null) {
        callback(error, []);
        return;
      }
      const allowed = found.filter(({ address }) => policy.refusal(address, host) === null);
      const first = allowed[0];
      if (first === undefined) {
        callback(refused(policy, host, found[0]?.address ?? host) as NodeJS.ErrnoException, []);
      } else if (options.all === true) {
        callback(null, allowed);
      } else {
        callback(null, first.address, first.family);
      }
    });
  };
}

/**
 * Checks a host that is written as an address.
 *
 * @throws ApplicationFailure `AddressRefused`.
 */
export function checkHost(policy: AddressPolicy, host: string): void {
  const address = host.replace(/^\[|\]$/g, '');
  if (isIP(address) !== 0 && policy.refusal(address, address) !== null) throw refused(policy, host, address);
}

function refused(policy: AddressPolicy, host: string, address: string): Error {
  const what = policy.refusal(address, host) ?? 'refused';
  const named = host === address || host === `[${address}]` ? address : `${host} (${address})`;
  return failure('AddressRefused', `The worker does not connect to ${named}: the address is ${what}.`, {
    next: `If it should, add the address or its network to ${policy.setting} (${policy.env}) in the configuration of the worker.`,
  });
}

/** Whether an address or the host it came from is among the listed networks and hosts. */
function allowRule(entries: readonly string[], setting: string): (address: string, host: string) => boolean {
  const networks = new BlockList();
  const hosts = new Set<string>();
  for (const entry of entries) {
    if (entry.includes('/') || isIP(entry) !== 0) addNetwork(networks, entry, setting);
    else hosts.add(plainHost(entry));
  }
  return (address, host) => {
    if (hosts.has(plainHost(host))) return true;
    const plain = unmapped(address);
    const family = familyOf(plain);
    return family !== null && networks.check(plain, family);
  };
}

/** Upper case and the dot of the root make no other host. */
function plainHost(host: string): string {
  return host.toLowerCase().replace(/\.$/, '');
}

function blockList(cidr: string): BlockList {
  const list = new BlockList();
  addNetwork(list, cidr, 'the built-in list');
  return list;
}

function addNetwork(list: BlockList, cidr: string, setting: string): void {
  const slash = cidr.indexOf('/');
  const address = slash === -1 ? cidr : cidr.slice(0, slash);
  const family = familyOf(address);
  const most = family === 'ipv4' ? 32 : 128;
  const prefix = slash === -1 ? most : Number(cidr.slice(slash + 1));
  if (family === null || !Number.isInteger(prefix) || prefix < 0 || prefix > most) {
    throw failure(
      'ConfigInvalid',
      `${setting} has "${cidr}", which is neither a network such as 10.0.0.0/8 nor a host.`,
    );
  }
  list.addSubnet(address, prefix, family);
}

function familyOf(address: string): 'ipv4' | 'ipv6' | null {
  const version = isIP(address);
  return version === 4 ? 'ipv4' : version === 6 ? 'ipv6' : null;
}

/** The IPv4 address inside `::ffff:1.2.3.4` or `::ffff:102:304`, else the address itself, without a zone. */
function unmapped(address: string): string {
  const plain = address.replace(/%.*$/, '').toLowerCase();
  if (isIP(plain) !== 6) return plain;
  // The URL parser gives the one canonical spelling of an IPv6 address, with the IPv4 part in hexadecimal.
  const canonical = new URL(`http://[${plain}]/`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(canonical);
  if (mapped === null) return canonical;
  const high = Number.parseInt(mapped[1] ?? '0', 16);
  const low = Number.parseInt(mapped[2] ?? '0', 16);
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

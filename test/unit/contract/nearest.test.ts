import { describe, expect, it } from 'vitest';
import { nearestName } from '../../../src/contract/nearest.js';

const NAMES = ['max_sessions', 'max_activities', 'name', 'grace', 'ATLAS_NAME'];

describe('nearestName', () => {
  it.each([
    ['max_sesions', 'max_sessions'],
    ['max-sessions', 'max_sessions'],
    ['maxActivities', 'max_activities'],
    ['NAME', 'name'],
    ['gracee', 'grace'],
    ['ATLAS_NAEM', 'ATLAS_NAME'],
  ])('takes %s for %s', (name, expected) => {
    expect(nearestName(name, NAMES)).toBe(expected);
  });

  it.each(['', 'x', 'colour', 'abcd', 'sessions_of_all_workers'])('takes %j for nothing', (name) => {
    expect(nearestName(name, NAMES)).toBeUndefined();
  });

  it('takes the first of two that are as near', () => {
    expect(nearestName('cat', ['bat', 'hat'])).toBe('bat');
  });
});

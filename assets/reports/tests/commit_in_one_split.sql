{{ config(meta={
    'dagster': {'ref': {'name': 'stg_edits'}},
    'description': 'No commit, and no fork of a repository, is in two splits.',
}) }}
-- The links of an edit are the keys of its commit, of its repository and of every fork that holds the commit.
with links as (
    select unnest(normalized.link_keys) as link, edits.split
    from {{ ref('stg_normalized') }} as normalized
    inner join {{ ref('stg_edits') }} as edits using (id)
)

select link
from links
group by link
having count(distinct split) > 1

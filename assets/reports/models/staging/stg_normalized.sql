select dataset, language, id, license, link_keys from {{ source('lineage', 'normalized') }}

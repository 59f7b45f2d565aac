select dataset, language, id, licence, link_keys from {{ source('lineage', 'normalized') }}
